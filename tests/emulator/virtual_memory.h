#pragma once

// Virtual memory of the emulated devices: a range of addresses is reserved, memory is created,
// mapped there, and made accessible (driver_api.h).
//
// Memory is a file without a name, so that another process that is given its descriptor maps the
// same bytes.  It counts in the device's memory for the process that created it, in whole granules,
// until its handles are released and its mappings unmapped, in either order.
//
// Refused are a size or an address that is not whole granules, a mapping outside of one reservation
// or over another mapping, one that reaches beyond the memory, access to a range that is not whole
// mappings, a part of a mapping unmapped, a reservation freed in part or with mappings in it,
// handles that are none or were released, and any of these calls while the thread captures a graph.
// cuGetErrorString then says which.  Memory without access faults.

#include <cstddef>
#include <optional>
#include <string>

#include "driver_api.h"

namespace emulator {

constexpr size_t memory_granule = size_t{2} << 20;

// What the devices have of it, which tests may change.
struct VirtualMemoryKind {
  bool exists = true, shares_files = true, gpu_direct = true;
  std::string failing_call = {};  // which reports that there is no memory
};
VirtualMemoryKind& virtual_memory_kind();

// The mapping that an address is in.
struct MappedMemory {
  std::byte* begin = nullptr;
  size_t bytes = 0;
  int device = 0;  // whose memory it is
  int file = -1;   // the memory, from its beginning; -1: it was not created to be shared
  bool has_access = false;
};
// None for memory that is not of these functions, such as cudaMalloc's.
std::optional<MappedMemory> mapping_of(const void* address);

// What this process has not given back yet.
struct VirtualMemoryCount {
  size_t reservations = 0, handles = 0, mappings = 0;
  bool operator==(const VirtualMemoryCount&) const = default;
};
VirtualMemoryCount count_virtual_memory();

}  // namespace emulator
