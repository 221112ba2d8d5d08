#pragma once

// A LifetimeRecorder records each allocation's birth and death during a rehearsal.
//
// The work may have phases, which Arena::begin_phase() begins.  If it is never called there is one
// phase, 0.  Repeated work (repetition.h) is recorded once.

#include <unordered_map>
#include <vector>

#include "spool/runtime/memory/arena.h"

namespace spool {

// An allocation that is live from its birth until its death.  Time counts allocations and frees.
struct Lifetime {
  size_t bytes = 0;  // whole granules
  Label label = {};
  size_t birth = 0, death = 0;
};

struct Lifetimes {
  // The indices of a phase's allocations, [begin, end).
  struct Phase {
    size_t begin = 0, end = 0;
  };
  std::vector<Lifetime> all = {};  // by birth
  std::vector<Phase> phases = {};
};

// Records the allocations made during its lifetime.  An arena has at most one recorder at a time.
class LifetimeRecorder {
 public:
  explicit LifetimeRecorder(Arena&);
  ~LifetimeRecorder();
  LifetimeRecorder(const LifetimeRecorder&) = delete;
  LifetimeRecorder& operator=(const LifetimeRecorder&) = delete;

  // Ends the recording.  Throws if a recorded allocation is still live.
  Lifetimes finish();

 private:
  friend class Arena;
  friend class Repetition;
  void begin_phase(size_t phase);
  void record_birth(const Arena::Block*, size_t bytes, const Label&);
  void record_death(const Arena::Block*);

  Arena& arena_;
  Lifetimes lifetimes_;
  std::unordered_map<const Arena::Block*, size_t> live_;  // indices of lifetimes
  size_t time_ = 0, phase_ = 0;
  bool paused_ = false;  // while work is repeated
};

}  // namespace spool
