#include "spool/runtime/memory/allocation_log.h"

#include <algorithm>
#include <numeric>

#include "spool/runtime/memory/arena_block.h"

namespace spool {

AllocationLog::AllocationLog(Arena& arena, std::function<double()> clock, const Trace* trace)
    : arena_(arena), clock_(std::move(clock)), trace_(trace), first_(arena.allocations()) {
  check(!arena.log(), "allocations: the arena has a log already");
  arena.set_log(this);
}

size_t AllocationLog::next_event() {
  if (clock_) history_.times.push_back(clock_());
  if (work_ && !in_copy()) last_work_ = work_;
  return events_++;
}

void AllocationLog::record_birth(const Arena::Block& block) {
  check(block.number == first_ + history_.all.size(), "allocations: the log missed some");
  history_.all.push_back({.bytes = block.bytes,
                          .spec = block.spec,
                          .label = block.label,
                          .address = arena_.address(&block),
                          .birth = next_event(),
                          .fetched = in_copy() ? trace_->context().node : -1,
                          .is_repeated = is_repeated_,
                          .born_in = work_});
}

void AllocationLog::record_death(const Arena::Block& block) {
  if (block.number < first_) return;
  LoggedAllocation& allocation = history_.all[block.number - first_];
  allocation.death = next_event();
  allocation.died_in = last_work_;
}

LoggedAllocation* AllocationLog::live_at(const std::byte* address) {
  const auto at = std::find_if(history_.all.rbegin(), history_.all.rend(), [&](const auto& a) {
    const bool is_live = a.death == LoggedAllocation::never;
    return is_live && address >= a.address && address < a.address + a.bytes;
  });
  return at == history_.all.rend() ? nullptr : &*at;
}

void AllocationLog::record_offloaded(const std::byte* address, uint64_t transfer) {
  LoggedAllocation* const offloaded = live_at(address);
  if (!offloaded || offloaded->offloaded != LoggedAllocation::never) return;
  offloaded->offloaded = next_event();
  offloaded->transfer = transfer;
}

void AllocationLog::record_rest(const std::byte* address, uint64_t transfer) {
  LoggedAllocation* const rest = live_at(address);
  if (!rest) return;
  rest->is_rest = true;
  rest->transfer = transfer;
}

std::vector<const LoggedAllocation*> AllocationLog::at_peak() const {
  std::vector<const LoggedAllocation*> live;
  for (const LoggedAllocation& a : history_.all) {
    if (a.birth < events_at_peak_ && a.death >= events_at_peak_) live.push_back(&a);
  }
  return live;
}

namespace {

void add_phase(Lifetimes& lifetimes, size_t phase) {
  const size_t next = lifetimes.all.size();
  if (phase >= lifetimes.phases.size()) lifetimes.phases.resize(phase + 1);
  check(lifetimes.phases[phase].end == 0, "lifetimes: phase ", phase, " was recorded before");
  lifetimes.phases[phase] = {.begin = next, .end = next};
}

// Renumbers births and deaths, which are events of a log, without gaps.
void count_time(std::vector<Lifetime>& all, size_t events) {
  std::vector<size_t> time(events + 1);  // of each event, how many births and deaths are before it
  for (const Lifetime& l : all) time[l.birth + 1] = time[l.death + 1] = 1;
  std::partial_sum(time.begin(), time.end(), time.begin());
  for (Lifetime& l : all) {
    l.birth = time[l.birth];
    l.death = time[l.death];
  }
}

}  // namespace

Lifetimes AllocationLog::lifetimes(size_t since) const {
  Lifetimes lifetimes;
  size_t phase = 0;
  auto next = std::ranges::lower_bound(phases_, since, {}, &Phase::begin);
  const auto begin_phases = [&](size_t before) {
    for (; next != phases_.end() && next->begin < before; ++next) {
      phase = next->phase;
      add_phase(lifetimes, phase);
    }
  };
  for (const LoggedAllocation& a : history_.all) {
    if (a.birth < since) continue;
    begin_phases(a.birth + 1);
    if (a.is_repeated) continue;
    check(
        a.death != LoggedAllocation::never, "lifetimes: ", a.label.name, " (",
        name(a.label.purpose), "), ", a.bytes,
        " bytes, is still live when the recording ends, and only allocations that the step frees ",
        "can be placed; allocate it before the step");
    if (lifetimes.phases.empty()) add_phase(lifetimes, phase);
    lifetimes.all.push_back(
        {.bytes = a.bytes, .label = a.label, .birth = a.birth, .death = a.death});
    lifetimes.phases[phase].end = lifetimes.all.size();
  }
  begin_phases(events_ + 1);
  count_time(lifetimes.all, events_);
  return lifetimes;
}

}  // namespace spool
