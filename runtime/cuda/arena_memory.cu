#include "spool/runtime/cuda/arena_memory.h"

#include <cuda.h>

#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/handles.cuh"
#include "spool/runtime/integer.h"

namespace spool::cuda {
namespace {

// The functions of CUDA's driver that make virtual memory, looked up, as libcuda is not linked.
struct DriverCalls {
  decltype(&cuGetErrorString) error_string = nullptr;
  decltype(&cuGetErrorName) error_name = nullptr;
  decltype(&cuDeviceGet) device = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  const char* missing = nullptr;  // one that the driver has not

  DriverCalls() {
    find(error_string, "cuGetErrorString");
    find(error_name, "cuGetErrorName");
    find(device, "cuDeviceGet");
    find(attribute, "cuDeviceGetAttribute");
    find(granularity, "cuMemGetAllocationGranularity");
    find(reserve, "cuMemAddressReserve");
    find(free, "cuMemAddressFree");
    find(create, "cuMemCreate");
    find(release, "cuMemRelease");
    find(map, "cuMemMap");
    find(unmap, "cuMemUnmap");
    find(set_access, "cuMemSetAccess");
  }

 private:
  template <class Function>
  void find(Function& function, const char* name) {
    void* found = nullptr;
#if CUDART_VERSION >= 12050
    constexpr unsigned oldest_driver = 12000;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &found, oldest_driver, cudaEnableDefault);
#else
    const cudaError_t status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault);
#endif
    (void)cudaGetLastError();
    if (status != cudaSuccess || !found) missing = name;
    function = reinterpret_cast<Function>(found);
  }
};

const DriverCalls& driver() {
  static const DriverCalls calls;
  return calls;
}

template <class... Parts>
void check_driver_call(CUresult status, const Parts&... call) {
  if (status == CUDA_SUCCESS) return;
  const char *text = nullptr, *name = nullptr;
  (void)driver().error_string(status, &text);
  (void)driver().error_name(status, &name);
  fail(ErrorKind::device, "CUDA: ", call..., ": ", text ? text : "an unknown error", " (",
       name ? name : "", ")");
}

int value_of(CUdevice_attribute attribute, CUdevice device) {
  int value = 0;
  check_driver_call(driver().attribute(&value, attribute, device), "cuDeviceGetAttribute");
  return value;
}

CUdevice driver_device(int index) {
  CUdevice device = 0;
  check_driver_call(driver().device(&device, index), "cuDeviceGet");
  return device;
}

// Why an arena cannot be virtual memory that processes share; empty if it can.
std::string why_no_virtual_memory(int index) {
  if (driver().missing) return sentence("the driver has no ", driver().missing);
  const CUdevice device = driver_device(index);
  if (!value_of(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device)) {
    return "the device or its driver has no virtual memory";
  }
  if (!value_of(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device)) {
    return "the device or its driver shares no memory between processes";
  }
  return {};
}

CUmemAllocationProp shared_memory_of(int index) {
  CUmemAllocationProp all{};
  all.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  all.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  all.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  all.location.id = driver_device(index);
  all.allocFlags.gpuDirectRDMACapable =
      value_of(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, all.location.id) != 0;
  return all;
}

// What each of these made it undoes, so that nothing stays of memory that could not be had.
struct ReservedAddresses {
  CUdeviceptr begin = 0;
  size_t bytes;
  explicit ReservedAddresses(size_t size) : bytes(size) {
    check_driver_call(driver().reserve(&begin, bytes, /*alignment=*/0, /*addr=*/0, /*flags=*/0),
                      "cuMemAddressReserve of ", bytes, " bytes");
  }
  ~ReservedAddresses() { (void)driver().free(begin, bytes); }
  ReservedAddresses(const ReservedAddresses&) = delete;
  ReservedAddresses& operator=(const ReservedAddresses&) = delete;
};

struct CreatedMemory {
  CUmemGenericAllocationHandle handle = 0;
  CreatedMemory(const CUmemAllocationProp& kind, size_t bytes) {
    check_driver_call(driver().create(&handle, bytes, &kind, /*flags=*/0), "cuMemCreate of ", bytes,
                      " bytes");
  }
  ~CreatedMemory() { (void)driver().release(handle); }
  CreatedMemory(const CreatedMemory&) = delete;
  CreatedMemory& operator=(const CreatedMemory&) = delete;
};

// Keeps the memory, whose handle may be released.
struct MappedAddresses {
  CUdeviceptr begin;
  size_t bytes;
  MappedAddresses(const ReservedAddresses& at, const CreatedMemory& memory)
      : begin(at.begin), bytes(at.bytes) {
    check_driver_call(driver().map(begin, bytes, /*offset=*/0, memory.handle, /*flags=*/0),
                      "cuMemMap of ", bytes, " bytes");
  }
  ~MappedAddresses() { (void)driver().unmap(begin, bytes); }
  MappedAddresses(const MappedAddresses&) = delete;
  MappedAddresses& operator=(const MappedAddresses&) = delete;
};

struct VirtualMemory {
  ReservedAddresses addresses;
  MappedAddresses mapped;
  VirtualMemory(const CUmemAllocationProp& kind, size_t bytes)
      : addresses(bytes), mapped(addresses, CreatedMemory(kind, bytes)) {
    CUmemAccessDesc access{};
    access.location = kind.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check_driver_call(driver().set_access(addresses.begin, bytes, &access, 1), "cuMemSetAccess");
  }
};

}  // namespace

size_t arena_page(int index) {
  size_t bytes = cuda_page_bytes;
  if (!why_no_virtual_memory(index).empty()) return bytes;
  const CUmemAllocationProp kind = shared_memory_of(index);
  const CUresult status = driver().granularity(&bytes, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  return status == CUDA_SUCCESS ? bytes : cuda_page_bytes;
}

ArenaMemory::ArenaMemory(int index, size_t bytes)
    : reserved_(bytes), why_not_shared_(why_no_virtual_memory(index)) {
  if (why_not_shared_.empty()) {
    try {
      const size_t rounded = round_up(bytes, arena_page(index));
      const auto memory = std::make_shared<VirtualMemory>(shared_memory_of(index), rounded);
      data_ = reinterpret_cast<std::byte*>(memory->addresses.begin);
      reserved_ = rounded;
      owner_ = memory;
      return;
    } catch (const Error& e) {  // as where a container forbids to share
      why_not_shared_ = e.what();
    }
  }
  const auto memory = std::make_shared<DeviceMemory>(bytes);
  data_ = memory->data();
  owner_ = memory;
}

}  // namespace spool::cuda
