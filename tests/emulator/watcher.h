#pragma once

// An observer of every access to device memory: the race checker, in programs linked with it.

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
  // Returns the error of the block, if there is one.
  virtual std::string block_ends() = 0;
};

// Null without the race checker.
extern Watcher* watcher;

}  // namespace emulator
