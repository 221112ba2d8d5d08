#pragma once

// Memory of work that is done several times, and each time allocates and frees the same in the same
// order and leaves memory as it was.  A LifetimeRecorder records the first time only, and a
// PlacedStep has one set of offsets for all.

#include <cstddef>
#include <cstdint>

#include "spool/runtime/memory/arena.h"

namespace spool {

// Lives as long as the work is repeated.  Repetitions nest; the work begins no phase.
class Repetition {
 public:
  explicit Repetition(Arena&);
  // If the work throws, what follows is recorded again, and a PlacedStep stays where it is.
  ~Repetition();
  Repetition(const Repetition&) = delete;
  Repetition& operator=(const Repetition&) = delete;

  // Each time is between begin() and end(), which throws Error (invalid) unless memory is as it was
  // and the PlacedStep, if any, is where it was after the first time.
  void begin();
  void end();

 private:
  void check_memory() const;
  void check_placed() const;

  Arena& arena_;
  size_t live_;
  uint64_t live_hash_;
  size_t first_ = 0, last_ = 0;  // of the PlacedStep's allocations: [first_, last_)
  size_t phase_ = 0;
  int times_ = 0;
  bool was_paused_ = false;
};

}  // namespace spool
