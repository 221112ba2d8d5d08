#include "spool/runtime/memory/repetition.h"

#include "spool/runtime/memory/allocation_log.h"

namespace spool {

Repetition::Repetition(Arena& arena)
    : arena_(arena), live_(arena.stats().live), live_hash_(arena.stats().live_hash) {
  if (PlacedStep* step = arena_.placed_step()) first_ = step->position();
}

Repetition::~Repetition() {
  AllocationLog* const log = arena_.log();
  if (log && times_ > 1) log->repeat(was_repeated_);
}

void Repetition::begin() {
  if (++times_ == 1) return;
  if (AllocationLog* log = arena_.log()) {
    const bool was_repeated = log->repeat(true);
    if (times_ == 2) was_repeated_ = was_repeated;
  }
  if (PlacedStep* step = arena_.placed_step()) step->go_back(first_.next);
}

void Repetition::end() {
  check_memory();
  if (PlacedStep* step = arena_.placed_step()) check_placed(step->position());
}

void Repetition::check_memory() const {
  const size_t live = arena_.stats().live;
  if (live == live_ && arena_.stats().live_hash == live_hash_) return;
  fail(ErrorKind::invalid, "repeat: repeated work must leave memory as it was: before it ", live_,
       " bytes were live, and after it ", live, live == live_ ? ", at other places" : "",
       "; it must free what it allocates and nothing else");
}

void Repetition::check_placed(const PlacedStep::Position& end) {
  if (times_ == 1) last_ = end.next;
  check(end.phase == first_.phase, "layout: a phase begins in repeated work; begin it before");
  check(end.next == last_, "layout: repeated work made ", end.next - first_.next,
        " allocations, and ", last_ - first_.next,
        " the first time; each time it must allocate the same, in the same order");
}

}  // namespace spool
