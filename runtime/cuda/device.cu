#include "spool/runtime/cuda/device.h"

#include "spool/runtime/cuda/arena_memory.h"
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

__global__ void any_kernel() {}

// Makes the device current, which makes CUDA's context on it, and loads a kernel.
void check_usable(int index, const CudaDevice& device) {
  const auto refuse = [&](const auto&... why) {
    fail_setting(ErrorKind::device, {"device"}, "device cuda:", index, ": ", device.name, why...);
  };
  const cudaError_t status = cudaSetDevice(index);
  (void)cudaGetLastError();
  if (status == cudaErrorDevicesUnavailable &&
      value_of(cudaDevAttrComputeMode, index) != cudaComputeModeDefault) {
    refuse(" lets no further program in, as its compute mode says (nvidia-smi -c DEFAULT allows ",
           "several); end the one that has it, or use another device");
  } else if (status == cudaErrorDevicesUnavailable) {
    refuse(" is in use by another program, or was lost by one; end that, or use another device");
  } else if (status == cudaErrorMemoryAllocation) {
    refuse(" has less free memory than CUDA's own context takes; end other programs on it, or use ",
           "another device");
  }
  cuda::check_call(status, "cudaSetDevice");
  cudaFuncAttributes attributes{};
  const auto* const kernel = reinterpret_cast<const void*>(any_kernel);
  const cudaError_t loaded = cudaFuncGetAttributes(&attributes, kernel);
  (void)cudaGetLastError();
  if (loaded == cudaErrorNoKernelImageForDevice || loaded == cudaErrorInvalidDeviceFunction) {
    refuse(" has compute capability ", device.major, ".", device.minor,
           ", for which this build has no kernels; build with -DCMAKE_CUDA_ARCHITECTURES=",
           device.major, device.minor);
  }
  cuda::check_call(loaded, "cudaFuncGetAttributes");
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
  device.uuid.assign(properties.uuid.bytes, sizeof properties.uuid.bytes);
  device.major = value_of(cudaDevAttrComputeCapabilityMajor, index);
  device.minor = value_of(cudaDevAttrComputeCapabilityMinor, index);
  device.multiprocessors = value_of(cudaDevAttrMultiProcessorCount, index);
  if (device.major < 8) {
    fail_setting(ErrorKind::device, {"device"}, "device cuda:", index, ": ", device.name,
                 " has compute capability ", device.major, ".", device.minor,
                 ", and Spool's kernels need at least 8.0 (Ampere and newer); use the device cpu");
  }
  check_usable(index, device);
  cuda::check_call(cudaMemGetInfo(&device.free_bytes, &device.bytes), "cudaMemGetInfo");
  device.page_bytes = cuda::arena_page(index);
  cuda::check_call(cudaDriverGetVersion(&device.driver), "cudaDriverGetVersion");
  cuda::check_call(cudaRuntimeGetVersion(&device.runtime), "cudaRuntimeGetVersion");
  return device;
}

}  // namespace spool
