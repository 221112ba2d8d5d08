#pragma once

// An AllocationLog records every allocation of an arena during its lifetime: when it was made and
// freed, and for which work.  What is live at the peak, and the lifetimes that a step is laid out
// by (lifetimes.h), are read from it.  It takes about 250 bytes for each allocation.

#include <deque>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "spool/runtime/memory/arena.h"
#include "spool/runtime/memory/lifetimes.h"
#include "spool/runtime/trace.h"

namespace spool {

// Events are births, deaths and beginnings of copies off the device, counted from 0.
struct LoggedAllocation {
  static constexpr size_t never = std::numeric_limits<size_t>::max();

  size_t bytes = 0;  // whole granules
  Spec spec = {};
  Label label = {};
  const std::byte* address = nullptr;
  size_t birth = 0, death = never, offloaded = never;
  uint64_t transfer = 0;     // number of the copy that offloads it, or other rows of its value
  int64_t fetched = -1;      // number of the copy that brings it back; -1: none
  bool is_rest = false;      // the rows of an offloaded value that stay on the device
  bool is_repeated = false;  // made by repeated work after its first time (repetition.h)
  // The work it was made for, and the work, not a copy, in or after which it was freed.
  TraceContext born_in = {}, died_in = {};
};

struct AllocationHistory {
  std::deque<LoggedAllocation> all = {};  // by birth
  std::vector<double> times = {};         // of the events, seconds; they never fall
};

// An arena has at most one at a time.
class AllocationLog {
 public:
  // `clock` tells the time of events; without one the history has no times.  The trace, if any,
  // tells which allocations are made for copies.
  explicit AllocationLog(Arena&, std::function<double()> clock = nullptr, const Trace* = nullptr);
  ~AllocationLog() { arena_.set_log(nullptr); }
  AllocationLog(const AllocationLog&) = delete;
  AllocationLog& operator=(const AllocationLog&) = delete;

  // Names the work for which memory is allocated from now on; returns what it was before.
  TraceContext enter(const TraceContext& work) { return std::exchange(work_, work); }
  // Sets whether allocations from now on are repeated; returns whether they were before.
  bool repeat(bool repeated) { return std::exchange(is_repeated_, repeated); }
  // A copy of what is at this address, off the device, begins.
  void record_offloaded(const std::byte* address, uint64_t transfer);
  // At this address are the rows that stay of the value that this copy offloads.
  void record_rest(const std::byte* address, uint64_t transfer);

  // Called by the arena.
  void record_birth(const Arena::Block&);
  void record_death(const Arena::Block&);
  void record_phase(size_t phase) { phases_.push_back({.phase = phase, .begin = events_}); }
  void record_peak() { events_at_peak_ = events_; }

  // Events so far.
  size_t events() const { return events_; }
  const AllocationHistory& history() const { return history_; }
  // The allocations that are live at the arena's peak, by birth.  The peak is that of MemoryStats;
  // holes between blocks are part of it.
  std::vector<const LoggedAllocation*> at_peak() const;
  // The lifetimes of the allocations since an event.  Throws Error (invalid) if one is still live,
  // or if a phase has begun twice.
  Lifetimes lifetimes(size_t since = 0) const;

 private:
  struct Phase {
    size_t phase = 0, begin = 0;  // its first event
  };
  size_t next_event();
  bool in_copy() const { return trace_ && trace_->context().is_copy(); }
  LoggedAllocation* live_at(const std::byte* address);

  Arena& arena_;
  std::function<double()> clock_;
  const Trace* trace_;
  TraceContext work_ = {}, last_work_ = {};  // last_work_: the last that allocated or freed memory
  bool is_repeated_ = false;
  size_t first_;  // number of the first allocation (Arena::Block)
  size_t events_ = 0, events_at_peak_ = 0;
  AllocationHistory history_;
  std::vector<Phase> phases_;
};

}  // namespace spool
