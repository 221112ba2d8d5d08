#pragma once

// Somebody who is told what the device does, to judge every access to its memory: the race checker,
// in programs that are linked with it.

#include <cstddef>
#include <string>

namespace emulator {

class Watcher {
 public:
  virtual ~Watcher() = default;

  virtual void memory_made(const void* memory, size_t bytes) = 0;
  virtual void memory_gone(const void* memory) = 0;

  virtual void launch_begins() = 0;
  virtual void block_begins(const void* shared, size_t shared_bytes) = 0;
  virtual void thread_runs(int thread) = 0;
  virtual void barrier() = 0;  // of the block
  virtual void barrier_of(int warp) = 0;
  virtual void atomic(const void* memory, size_t bytes, const void* caller) = 0;
  // What was wrong, if anything; nobody runs from here on.
  virtual std::string block_ends() = 0;
};

// Null where there is none.
extern Watcher* watcher;

}  // namespace emulator
