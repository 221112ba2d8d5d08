#pragma once

// A Repetition marks work that is done several times, and each time makes and frees the same
// allocations in the same order and leaves memory as it was.  Lifetimes include the first time
// only, and a PlacedStep has one set of offsets for all times.

#include <cstddef>
#include <cstdint>

#include "spool/runtime/memory/layout.h"

namespace spool {

// Exists while the work is repeated.  Repetitions nest; the work begins no phase.
class Repetition {
 public:
  explicit Repetition(Arena&);
  // If the work throws, allocations after it are not repeated, and a PlacedStep stays where it is.
  ~Repetition();
  Repetition(const Repetition&) = delete;
  Repetition& operator=(const Repetition&) = delete;

  // Each time is between begin() and end(), which throws Error (invalid) unless memory is as it was
  // and the PlacedStep, if any, is where it was after the first time.
  void begin();
  void end();

 private:
  void check_memory() const;
  void check_placed(const PlacedStep::Position& end);

  Arena& arena_;
  size_t live_;
  uint64_t live_hash_;
  PlacedStep::Position first_ = {};  // of the PlacedStep when the work begins
  size_t last_ = 0;                  // its next allocation when the work ends
  int times_ = 0;
  bool was_repeated_ = false;
};

}  // namespace spool
