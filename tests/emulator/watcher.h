#pragma once

// An observer of every access to device memory: the race checker, in programs linked with it.

#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "execution.h"

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

// For tests that plant a missing barrier in any kernel: the barriers, of blocks and of warps, that
// the race checker was told of, by file and line; and one of which it is not told.  Threads meet at
// it as ever, so that a kernel without it comes to no other harm.
struct Barriers {
  using Place = std::pair<std::string, int>;
  std::set<Place> met;
  Place left_out;
};
// Null if no test asks.
extern Barriers* barriers;

// Whether the race checker is told of this barrier.
inline bool counts(Location where) {
  if (!barriers) return true;
  const Barriers::Place place(where.file, where.line);
  barriers->met.insert(place);
  return place != barriers->left_out;
}

}  // namespace emulator
