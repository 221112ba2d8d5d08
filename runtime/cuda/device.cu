#include "spool/runtime/cuda/device.h"

#include "spool/runtime/cuda/handles.cuh"

namespace spool {
namespace {

std::string version(int number) { return sentence(number / 1000, ".", number % 1000 / 10); }

int value_of(cudaDeviceAttr attribute, int index) {
  int value = 0;
  cuda::check_call(cudaDeviceGetAttribute(&value, attribute, index), "cudaDeviceGetAttribute");
  return value;
}

// Throws if there is no driver, or it is older than the CUDA runtime of this build.
void check_driver() {
  int driver = 0, runtime = 0;
  cuda::check_call(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda::check_call(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  if (driver == 0) {
    fail_setting(ErrorKind::device, {"device"},
                 "device cuda: there is no NVIDIA driver here; install one, or use the device cpu");
  }
  if (driver / 1000 < runtime / 1000) {
    fail(ErrorKind::device, "device cuda: the driver here is for CUDA ", version(driver),
         ", and this build needs at least CUDA ", version(runtime / 1000 * 1000),
         "; install a newer driver, or build with an older toolkit");
  }
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  return status == cudaSuccess ? count : 0;
}

CudaDevice cuda_device(int index) {
  check_driver();
  const int count = cuda_device_count();
  if (count == 0) {
    fail_setting(ErrorKind::device, {"device"},
                 "device cuda: there is no CUDA device here; use the device cpu");
  }
  if (index < 0 || index >= count) {
    fail_setting(ErrorKind::device, {"device"}, "device cuda:", index, ": there ",
                 count == 1 ? "is" : "are", " only ", count, ", cuda:0",
                 count == 1 ? "" : sentence(" to cuda:", count - 1));
  }
  CudaDevice device;
  cudaDeviceProp properties{};
  cuda::check_call(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  device.name = properties.name;
  device.major = value_of(cudaDevAttrComputeCapabilityMajor, index);
  device.minor = value_of(cudaDevAttrComputeCapabilityMinor, index);
  device.multiprocessors = value_of(cudaDevAttrMultiProcessorCount, index);
  if (device.major < 8) {
    fail_setting(ErrorKind::device, {"device"}, "device cuda:", index, ": ", device.name,
                 " has compute capability ", device.major, ".", device.minor,
                 ", and Spool's kernels need at least 8.0 (Ampere and newer); use the device cpu");
  }
  cuda::check_call(cudaSetDevice(index), "cudaSetDevice");
  cuda::check_call(cudaMemGetInfo(&device.free_bytes, &device.bytes), "cudaMemGetInfo");
  cuda::check_call(cudaDriverGetVersion(&device.driver), "cudaDriverGetVersion");
  cuda::check_call(cudaRuntimeGetVersion(&device.runtime), "cudaRuntimeGetVersion");
  return device;
}

}  // namespace spool
