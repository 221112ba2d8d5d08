#include "spool/runtime/memory/repetition.h"

#include "spool/runtime/memory/layout.h"

namespace spool {

Repetition::Repetition(Arena& arena)
    : arena_(arena), live_(arena.stats().live), live_hash_(arena.stats().live_hash) {
  if (const LifetimeRecorder* recorder = arena_.recorder_) was_paused_ = recorder->paused_;
  if (PlacedStep* step = arena_.placed_step_) {
    first_ = step->next();
    phase_ = step->phase_;
  }
}

Repetition::~Repetition() {
  if (LifetimeRecorder* recorder = arena_.recorder_) recorder->paused_ = was_paused_;
}

void Repetition::begin() {
  if (++times_ == 1) return;
  if (LifetimeRecorder* recorder = arena_.recorder_) recorder->paused_ = true;
  if (PlacedStep* step = arena_.placed_step_) step->next_ = first_;
}

void Repetition::end() {
  check_memory();
  if (const PlacedStep* step = arena_.placed_step_) {
    if (times_ == 1) last_ = step->next_;
    check_placed();
  }
}

void Repetition::check_memory() const {
  const size_t live = arena_.stats().live;
  if (live == live_ && arena_.stats().live_hash == live_hash_) return;
  fail(ErrorKind::invalid, "repeat: repeated work must leave memory as it was: before it ", live_,
       " bytes were live, and after it ", live, live == live_ ? ", at other places" : "",
       "; it must free what it allocates and nothing else");
}

void Repetition::check_placed() const {
  const PlacedStep& step = *arena_.placed_step_;
  check(step.phase_ == phase_, "layout: a phase begins in repeated work; begin it before");
  check(step.next_ == last_, "layout: repeated work made ", step.next_ - first_,
        " allocations, and ", last_ - first_,
        " the first time; each time it must allocate the same, in the same order");
}

}  // namespace spool
