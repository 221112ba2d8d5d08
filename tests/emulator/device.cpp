// The emulated devices: whether they can be used, their memory, and what kernels may have there.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "capture.h"
#include "errors.h"
#include "gpus.h"
#include "sanitizer.h"
#include "scheduler.h"
#include "shared_budget.h"
#include "watcher.h"

using emulator::device;
using emulator::failed;

namespace emulator {
namespace {

thread_local int current = 0;
bool contexts[max_devices] = {};

struct Allocation {
  size_t bytes;
  int device;
};
std::map<void*, Allocation> allocations;

// What a kernel may have, and has declared when it ran.
std::map<std::pair<int, const void*>, size_t> dynamic_limits;  // by device
std::map<const void*, size_t> declared;

std::string_view environment(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

Device as_environment_says() {
  Device d;
  d.count = visible_gpus();
  d.fails_at = std::strtoull(environment("EMULATOR_FAILS_AT").data(), nullptr, 10);
  const std::string_view gpu = environment("EMULATOR_GPU");
  if (gpu == "exclusive" || gpu == "busy") d.context = cudaErrorDevicesUnavailable;
  if (gpu == "full") d.context = cudaErrorMemoryAllocation;
  if (gpu == "foreign") d.kernels = cudaErrorNoKernelImageForDevice;
  if (gpu == "other") d.name = "other emulated GPU";
  if (gpu == "new_driver") d.driver += 10;
  return d;
}

// Whether a capture forbids to take or give back memory.
bool forbidden() {
  Capture::invalidate_all();
  return Capture::any();
}

// Every allocation is followed by a poisoned zone.
size_t mapped(size_t bytes) {
  constexpr size_t page = 4096;
  return (bytes + page - 1) / page * page + page;
}

void* reserve(size_t bytes) {
  void* memory = ::mmap(nullptr, mapped(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  poison(static_cast<char*>(memory) + bytes, mapped(bytes) - bytes);
  if (watcher) watcher->memory_made(memory, bytes);
  return memory;
}

void give_back(void* memory, size_t bytes) {
  if (watcher) watcher->memory_gone(memory);
  unpoison(memory, mapped(bytes));
  ::munmap(memory, mapped(bytes));
}

// The status of a call that needs the device and is not allowed in a capture.
cudaError_t to_change_memory() {
  return forbidden() ? failed(cudaErrorStreamCaptureUnsupported) : use_device();
}

// For a test that counts the contexts of processes.
void note_context(int index) {
  const char* const path = std::getenv("EMULATOR_CONTEXTS");
  std::FILE* const file = path ? std::fopen(path, "a") : nullptr;
  if (!file) return;
  std::fprintf(file, "%d %d\n", ::getpid(), index);
  std::fclose(file);
}

}  // namespace

Device& device() {
  static Device all = as_environment_says();
  return all;
}

size_t used_bytes(int index) { return budget().used(index); }
bool has_context(int index) { return contexts[index]; }

cudaError_t use_device() {
  if (current >= device().count) return failed(cudaErrorNoDevice);
  if (device().context != cudaSuccess) return failed(device().context);
  if (!std::exchange(contexts[current], true)) note_context(current);
  return cudaSuccess;
}

void begin_kernel(const void* kernel, int index) {
  static uint64_t kernels = 0;
  if (++kernels == device().fails_at) throw Error("an emulated failure");
  const bool has_limit = dynamic_limits.contains({index, kernel});
  scheduler().shared().begin_kernel(
      has_limit ? SharedMemory::max_bytes : SharedMemory::max_static_bytes, declared[kernel]);
}

cudaError_t check_launch(const void* kernel, const cudaLaunchConfig_t& c) {
  const dim3 g = c.gridDim, b = c.blockDim;
  constexpr unsigned max_blocks = 65535, max_blocks_x = 0x7fffffff;
  constexpr unsigned max_threads_z = 64;
  const uint64_t blocks = uint64_t{g.x} * g.y * g.z, threads = uint64_t{b.x} * b.y * b.z;
  if (device_of(c.stream) != current) return failed(cudaErrorInvalidResourceHandle);
  if (device().kernels != cudaSuccess) return failed(device().kernels);
  if (blocks == 0 || g.x > max_blocks_x || g.y > max_blocks || g.z > max_blocks || threads == 0 ||
      threads > uint64_t{max_threads} || b.z > max_threads_z) {
    return failed(cudaErrorInvalidConfiguration);
  }
  const auto limit = dynamic_limits.find({current, kernel});
  const size_t shared =
      limit == dynamic_limits.end() ? SharedMemory::max_static_bytes : limit->second;
  return c.dynamicSmemBytes > shared ? failed(cudaErrorInvalidValue) : cudaSuccess;
}

}  // namespace emulator

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device().count;
  return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= device().count) return failed(cudaErrorInvalidDevice);
  emulator::current = index;
  return emulator::use_device();
}
cudaError_t cudaGetDevice(int* index) {
  *index = emulator::current;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = device().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = device().runtime;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const bool exclusive = emulator::environment("EMULATOR_GPU") == "exclusive";
  *value = attribute == cudaDevAttrMultiProcessorCount ? device().multiprocessors
           : attribute == cudaDevAttrComputeMode
               ? (exclusive ? cudaComputeModeExclusiveProcess : cudaComputeModeDefault)
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin
               ? int{emulator::SharedMemory::max_bytes}
           : attribute == cudaDevAttrComputeCapabilityMajor ? device().major
                                                            : device().minor;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  properties->uuid = {};
  properties->uuid.bytes[0] = static_cast<char>(emulator::gpu_of(index));
  std::snprintf(properties->name, sizeof properties->name, "%s", device().name.c_str());
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t status = emulator::use_device(); status != cudaSuccess) return status;
  *total = device().bytes;
  *free = *total - std::min(*total, emulator::used_bytes(emulator::current));
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (const cudaError_t status = emulator::use_device(); status != cudaSuccess) return status;
  if (device().kernels != cudaSuccess) return failed(device().kernels);
  attributes->sharedSizeBytes = emulator::declared[kernel];
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  if (const cudaError_t status = emulator::use_device(); status != cudaSuccess) return status;
  if (device().kernels != cudaSuccess) return failed(device().kernels);
  const auto bytes = static_cast<size_t>(value);
  if (value < 0 || bytes + emulator::declared[kernel] > emulator::SharedMemory::max_bytes) {
    return failed(cudaErrorInvalidValue);
  }
  emulator::dynamic_limits[{emulator::current, kernel}] = bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t status = emulator::to_change_memory(); status != cudaSuccess) return status;
  const int index = emulator::current;
  if (!emulator::budget().take(index, bytes, device().bytes)) {
    return failed(cudaErrorMemoryAllocation);
  }
  *memory = emulator::reserve(bytes);
  if (!*memory) {
    emulator::budget().give_back(index, bytes);
    return failed(cudaErrorMemoryAllocation);
  }
  emulator::allocations[*memory] = {.bytes = bytes, .device = index};
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (emulator::forbidden()) return failed(cudaErrorStreamCaptureUnsupported);
  if (!memory) return cudaSuccess;
  const auto found = emulator::allocations.find(memory);
  if (found == emulator::allocations.end()) return failed(cudaErrorInvalidValue);
  const auto [bytes, index] = found->second;
  emulator::give_back(memory, bytes);
  emulator::budget().give_back(index, bytes);
  emulator::allocations.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (const cudaError_t status = emulator::to_change_memory(); status != cudaSuccess) return status;
  constexpr size_t page = 4096;  // as CUDA does
  *memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  return *memory ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* memory) {
  if (emulator::forbidden()) return failed(cudaErrorStreamCaptureUnsupported);
  std::free(memory);
  return cudaSuccess;
}
