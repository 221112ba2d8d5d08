#pragma once

// An AllocationLog has every allocation of an arena during its lifetime, repeated work included:
// when it was made and freed, by a clock, for which work, and when a copy of it off the device
// began.

#include <functional>
#include <limits>
#include <unordered_map>
#include <vector>

#include "spool/runtime/memory/arena.h"
#include "spool/runtime/trace.h"

namespace spool {

// Events are births, deaths and sends, counted from 0.
struct LoggedAllocation {
  static constexpr size_t never = std::numeric_limits<size_t>::max();

  size_t bytes = 0;  // whole granules
  Label label = {};
  size_t birth = 0, death = never, offloaded = never;
  uint64_t transfer = 0;  // the number of the copy, if it was sent, or if others of its rows were
  bool is_rest = false;   // the rows of a value that stay where the others were sent
  // The work that it was made for, and the work, not a copy, in or after which it was freed.
  TraceContext born_in = {}, died_in = {};
};

struct AllocationHistory {
  std::vector<LoggedAllocation> all = {};  // by birth
  std::vector<double> times = {};          // of the events, seconds; they never fall
};

// Whether the work is a copy of a tensor with a number, rather than a node's or the optimizer's.
bool is_copy(const TraceContext& work);

class AllocationLog {
 public:
  // `clock` and `work` tell the time, and the work that is enqueued.
  AllocationLog(Arena&, std::function<double()> clock, std::function<TraceContext()> work);
  ~AllocationLog();
  AllocationLog(const AllocationLog&) = delete;
  AllocationLog& operator=(const AllocationLog&) = delete;

  // A copy of what is at this address, off the device, begins.
  void record_offloaded(const std::byte* address, uint64_t transfer);
  // At this address are the rows that stay of the value that this copy sends.
  void record_rest(const std::byte* address, uint64_t transfer);
  // Events so far.
  size_t events() const { return history_.times.size(); }
  // All so far.
  const AllocationHistory& history() const { return history_; }

 private:
  friend class Arena;
  void record_birth(const Arena::Block*);
  void record_death(const Arena::Block*);
  size_t next_event();
  LoggedAllocation* live_at(const std::byte* address);
  // The work that is enqueued, which becomes last_work_ unless it is a copy.
  TraceContext note_work();

  Arena& arena_;
  std::function<double()> clock_;
  std::function<TraceContext()> work_;
  TraceContext last_work_ = {};
  AllocationHistory history_;
  std::unordered_map<const Arena::Block*, size_t> live_;  // indices of allocations
};

}  // namespace spool
