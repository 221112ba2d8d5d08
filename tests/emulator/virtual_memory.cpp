#include "virtual_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "capture.h"
#include "sanitizer.h"
#include "shared_budget.h"
#include "watcher.h"

namespace emulator {
namespace {

constexpr size_t page = 4096;
constexpr int anonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
// A memory's file has this name and its device, which a process that imports it reads.
constexpr std::string_view file_name = "memory of the emulated device ";

// Memory of a device, which lives as long as a handle or a mapping of it.
struct Memory {
  int file = -1, device = 0;
  size_t bytes = 0;
  bool is_shareable = false, is_own = false;  // own: created here, and counted in the budget

  Memory(int of, int at, size_t size) : file(of), device(at), bytes(size) {}
  ~Memory() {
    ::close(file);
    if (is_own) budget().give_back(device, bytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};
using MemoryOwner = std::shared_ptr<Memory>;

struct Mapping {
  size_t bytes = 0;
  MemoryOwner memory;
  bool has_access = false;
};

struct VirtualMemory {
  std::map<CUdeviceptr, size_t> reservations;
  std::map<CUdeviceptr, Mapping> mappings;
  std::map<CUmemGenericAllocationHandle, MemoryOwner> handles;
  CUmemGenericAllocationHandle next_handle = 1;

  CUmemGenericAllocationHandle add(MemoryOwner memory) {
    handles.emplace(next_handle, std::move(memory));
    return next_handle++;
  }
};

// Lives as long as the program, as what has memory may be destroyed at its very end.
VirtualMemory& all() {
  static VirtualMemory& one = *new VirtualMemory;
  return one;
}

CUresult invalid(const char* call, std::string_view sentence) {
  return refuse(CUDA_ERROR_INVALID_VALUE, call, sentence);
}

bool is_whole(size_t bytes) { return bytes % memory_granule == 0; }
bool is_whole_range(CUdeviceptr begin, size_t bytes) {
  return bytes > 0 && is_whole(begin) && is_whole(bytes);
}
constexpr const char* not_whole = "the range is not of whole granules of 2 MiB";

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

bool is_device(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 &&
         location.id < device().count;
}

// What is refused of every call: only those that change something are during a capture.
CUresult refusal_of(const char* call, bool changes = true) {
  bool has_any_context = false;
  for (int i = 0; i < max_devices; ++i) has_any_context = has_any_context || has_context(i);
  if (!has_any_context) {
    return refuse(CUDA_ERROR_NOT_INITIALIZED, call, "no device was used before");
  }
  if (!virtual_memory_kind().exists) {
    return refuse(CUDA_ERROR_NOT_SUPPORTED, call, "the device has no virtual memory");
  }
  if (changes) Capture::invalidate_all();
  if (changes && Capture::any()) {
    return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, call, "the thread captures a graph");
  }
  if (virtual_memory_kind().failing_call == call) {
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, "an emulated failure");
  }
  return CUDA_SUCCESS;
}

CUresult check_properties(const char* call, const CUmemAllocationProp& p) {
  if (p.type != CU_MEM_ALLOCATION_TYPE_PINNED) return invalid(call, "the memory is not pinned");
  if (!is_device(p.location)) {
    return refuse(CUDA_ERROR_INVALID_DEVICE, call, "the memory is of no device");
  }
  if (p.win32HandleMetaData || p.allocFlags.compressionType || p.allocFlags.usage) {
    return refuse(CUDA_ERROR_NOT_SUPPORTED, call,
                  "the properties are not initialised, or of a kind "
                  "that the emulator has not");
  }
  const bool is_shared = p.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!is_shared && p.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return refuse(CUDA_ERROR_NOT_SUPPORTED, call, "only file descriptors are shared here");
  }
  if ((is_shared && !virtual_memory_kind().shares_files) ||
      (p.allocFlags.gpuDirectRDMACapable && !virtual_memory_kind().gpu_direct)) {
    return refuse(CUDA_ERROR_NOT_SUPPORTED, call, "the device has no such memory");
  }
  return CUDA_SUCCESS;
}

// The mapping that an address is in; end() if none.
std::map<CUdeviceptr, Mapping>::iterator find_mapping(CUdeviceptr address) {
  auto& mappings = all().mappings;
  auto after = mappings.upper_bound(address);
  if (after == mappings.begin()) return mappings.end();
  --after;
  return address - after->first < after->second.bytes ? after : mappings.end();
}

bool has_mappings(CUdeviceptr begin, size_t bytes) {
  const auto next = all().mappings.lower_bound(begin);
  return find_mapping(begin) != all().mappings.end() ||
         (next != all().mappings.end() && next->first - begin < bytes);
}

bool is_reserved(CUdeviceptr begin, size_t bytes) {
  auto after = all().reservations.upper_bound(begin);
  if (after == all().reservations.begin()) return false;
  const auto [start, size] = *--after;
  return begin - start < size && bytes <= size - (begin - start);
}

// Whether the range is whole mappings, one after the other.
bool is_whole_mappings(CUdeviceptr begin, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const auto found = all().mappings.find(begin + done);
    if (found == all().mappings.end() || found->second.bytes > bytes - done) return false;
    done += found->second.bytes;
  }
  return bytes > 0;
}

// The device that a file's name says; -1 if it is not of an emulated device's memory.
int device_of_file(int file) {
  std::error_code none;
  const auto path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), none).string();
  const size_t at = path.find(file_name);
  int index = -1;
  if (at == std::string::npos) return index;
  std::from_chars(path.data() + at + file_name.size(), path.data() + path.size(), index);
  return index < max_devices ? index : -1;
}

}  // namespace

VirtualMemoryKind& virtual_memory_kind() {
  static VirtualMemoryKind kind;
  return kind;
}

std::optional<MappedMemory> mapping_of(const void* address) {
  const auto found = find_mapping(reinterpret_cast<CUdeviceptr>(address));
  if (found == all().mappings.end()) return std::nullopt;
  const auto& [begin, mapping] = *found;
  return MappedMemory{.begin = static_cast<std::byte*>(pointer(begin)),
                      .bytes = mapping.bytes,
                      .device = mapping.memory->device,
                      .file = mapping.memory->is_shareable ? mapping.memory->file : -1,
                      .has_access = mapping.has_access};
}

VirtualMemoryCount count_virtual_memory() {
  return {.reservations = all().reservations.size(),
          .handles = all().handles.size(),
          .mappings = all().mappings.size()};
}

}  // namespace emulator

using namespace emulator;

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  constexpr const char* call = "cuMemGetAllocationGranularity";
  if (const CUresult why = refusal_of(call, /*changes=*/false); why != CUDA_SUCCESS) return why;
  *bytes = memory_granule;
  return check_properties(call, *properties);
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  constexpr const char* call = "cuMemAddressReserve";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  if (!is_whole_range(0, bytes)) return invalid(call, not_whole);
  const bool is_power = (alignment & (alignment - 1)) == 0;
  if (!is_power || flags)
    return invalid(call, "the alignment is no power of two, or flags are set");
  alignment = std::max(alignment, memory_granule);
  // A poisoned page follows.
  const size_t kept = bytes + page, taken = kept + alignment;
  void* const memory = ::mmap(nullptr, taken, PROT_NONE, anonymous, -1, 0);
  if (memory == MAP_FAILED) return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, std::strerror(errno));
  const auto start = reinterpret_cast<CUdeviceptr>(memory);
  const CUdeviceptr aligned = (start + alignment - 1) / alignment * alignment;
  if (aligned > start) ::munmap(memory, aligned - start);
  ::munmap(pointer(aligned + kept), start + taken - (aligned + kept));
  poison(pointer(aligned + bytes), page);
  all().reservations[aligned] = bytes;
  *address = aligned;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  constexpr const char* call = "cuMemAddressFree";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  const auto found = all().reservations.find(address);
  if (found == all().reservations.end() || found->second != bytes) {
    return invalid(call, "the range is not one that was reserved");
  }
  if (has_mappings(address, bytes)) return invalid(call, "memory is still mapped in the range");
  unpoison(pointer(address + bytes), page);
  ::munmap(pointer(address), bytes + page);
  all().reservations.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  constexpr const char* call = "cuMemCreate";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  if (const CUresult why = check_properties(call, *properties); why != CUDA_SUCCESS) return why;
  if (!is_whole_range(0, bytes)) return invalid(call, not_whole);
  if (flags) return invalid(call, "flags are set");
  const int of = properties->location.id;
  const std::string name = std::string(file_name) + std::to_string(of);
  const int file = ::memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0) return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, std::strerror(errno));
  auto memory = std::make_shared<Memory>(file, of, bytes);
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, std::strerror(errno));
  }
  memory->is_own = budget().take(of, bytes, device().bytes);
  if (!memory->is_own) return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, "out of memory");
  memory->is_shareable =
      properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  *handle = all().add(std::move(memory));
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  constexpr const char* call = "cuMemRelease";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  if (all().handles.erase(handle) == 0) return invalid(call, "the handle is none, or was released");
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  constexpr const char* call = "cuMemRetainAllocationHandle";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  const auto found = find_mapping(reinterpret_cast<CUdeviceptr>(address));
  if (found == all().mappings.end()) return invalid(call, "no memory is mapped there");
  *handle = all().add(found->second.memory);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  constexpr const char* call = "cuMemMap";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  const auto found = all().handles.find(handle);
  if (found == all().handles.end()) return invalid(call, "the handle is none, or was released");
  if (!is_whole_range(address, bytes)) return invalid(call, not_whole);
  if (offset || flags) return invalid(call, "the offset and the flags must be 0");
  if (bytes > found->second->bytes) return invalid(call, "the range is larger than the memory");
  if (!is_reserved(address, bytes)) return invalid(call, "the range is not in one reservation");
  if (has_mappings(address, bytes)) return invalid(call, "memory is mapped in the range already");
  constexpr int shared = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  if (::mmap(pointer(address), bytes, PROT_NONE, shared, found->second->file, 0) == MAP_FAILED) {
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, std::strerror(errno));
  }
  if (watcher) watcher->memory_made(pointer(address), bytes);
  all().mappings[address] = {.bytes = bytes, .memory = found->second};
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  constexpr const char* call = "cuMemUnmap";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  if (!is_whole_mappings(address, bytes)) return invalid(call, "the range is not whole mappings");
  unpoison(pointer(address), bytes);
  constexpr int in_place = anonymous | MAP_FIXED;
  if (::mmap(pointer(address), bytes, PROT_NONE, in_place, -1, 0) == MAP_FAILED) {
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, std::strerror(errno));
  }
  auto& mappings = all().mappings;
  for (auto next = mappings.find(address); next != mappings.end() && next->first - address < bytes;
       next = mappings.erase(next)) {
    if (watcher) watcher->memory_gone(pointer(next->first));
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* accesses,
                        size_t count) {
  constexpr const char* call = "cuMemSetAccess";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  if (!is_whole_mappings(address, bytes)) return invalid(call, "the range is not whole mappings");
  int protection = PROT_NONE;
  for (const CUmemAccessDesc* access = accesses; access != accesses + count; ++access) {
    if (!is_device(access->location)) {
      return refuse(CUDA_ERROR_INVALID_DEVICE, call, "there is no such device");
    }
    if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ) protection |= PROT_READ;
    if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection |= PROT_READ | PROT_WRITE;
  }
  if (::mprotect(pointer(address), bytes, protection) != 0) {
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, std::strerror(errno));
  }
  for (auto next = all().mappings.find(address);
       next != all().mappings.end() && next->first - address < bytes; ++next) {
    next->second.has_access = protection != PROT_NONE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shared, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  constexpr const char* call = "cuMemExportToShareableHandle";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  const auto found = all().handles.find(handle);
  if (found == all().handles.end()) return invalid(call, "the handle is none, or was released");
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !found->second->is_shareable || flags) {
    return invalid(call, "the memory was not created to be shared by a file descriptor");
  }
  const int file = ::fcntl(found->second->file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, std::strerror(errno));
  *static_cast<int*>(shared) = file;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared,
                                        CUmemAllocationHandleType type) {
  constexpr const char* call = "cuMemImportFromShareableHandle";
  if (const CUresult why = refusal_of(call); why != CUDA_SUCCESS) return why;
  const auto given = static_cast<int>(reinterpret_cast<intptr_t>(shared));
  const int of = device_of_file(given);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || of < 0) {
    return invalid(call, "this is no file descriptor of a device's memory");
  }
  struct stat status = {};
  const int file = ::fcntl(given, F_DUPFD_CLOEXEC, 0);
  if (file < 0 || ::fstat(file, &status) != 0) {
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, call, std::strerror(errno));
  }
  auto memory = std::make_shared<Memory>(file, of, static_cast<size_t>(status.st_size));
  memory->is_shareable = true;
  *handle = all().add(std::move(memory));
  return CUDA_SUCCESS;
}
