#pragma once

// The memory of an arena on a CUDA device.  It is virtual memory, which NCCL registers and other
// processes may map: addresses are reserved, and memory that the driver creates is mapped there, in
// whole pages.  Where a device has none of that kind it is cudaMalloc's.  This header includes none
// of CUDA's.

#include <cstddef>
#include <memory>
#include <string>

namespace spool {
class CudaStream;
}

namespace spool::cuda {

// Bytes of the pages of a device's virtual memory; the usual ones if it has none.  The device is
// one that was used.
size_t arena_page(int index);

class ArenaMemory {
 public:
  // On the thread's current device, which is number `index`.
  ArenaMemory(int index, size_t bytes);
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  std::byte* data() const { return data_; }
  // What it takes of the device: the bytes asked for, up to whole pages.
  size_t reserved() const { return reserved_; }
  // Why other processes cannot map it, nor NCCL register it; empty if they can.
  const std::string& why_not_shared() const { return why_not_shared_; }

 private:
  std::byte* data_ = nullptr;
  size_t reserved_ = 0;
  std::string why_not_shared_;
  std::shared_ptr<void> owner_;
};

// What a stream's arena divides.
const ArenaMemory& arena_memory(CudaStream&);

}  // namespace spool::cuda
