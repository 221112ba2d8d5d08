#include "spool/runtime/memory/allocation_log.h"

#include <utility>

#include "spool/runtime/memory/arena_block.h"

namespace spool {

bool is_copy(const TraceContext& work) { return work.task && !work.op && work.node >= 0; }

AllocationLog::AllocationLog(Arena& arena, std::function<double()> clock,
                             std::function<TraceContext()> work)
    : arena_(arena), clock_(std::move(clock)), work_(std::move(work)) {
  check(!arena.allocation_log_, "allocations: the arena has a log already");
  arena.allocation_log_ = this;
}

AllocationLog::~AllocationLog() { arena_.allocation_log_ = nullptr; }

size_t AllocationLog::next_event() {
  history_.times.push_back(clock_());
  return history_.times.size() - 1;
}

const TraceContext& AllocationLog::last_work() {
  const TraceContext work = work_();
  if (work && !is_copy(work)) last_work_ = work;
  return last_work_;
}

void AllocationLog::record_birth(const Arena::Block* block) {
  live_[block] = history_.all.size();
  history_.all.push_back(
      {.bytes = block->bytes, .label = block->label, .birth = next_event(), .born_in = work_()});
  (void)last_work();
}

void AllocationLog::record_death(const Arena::Block* block) {
  const auto at = live_.find(block);
  if (at == live_.end()) return;
  LoggedAllocation& allocation = history_.all[at->second];
  allocation.death = next_event();
  allocation.died_in = last_work();
  live_.erase(at);
}

void AllocationLog::record_sent(const std::byte* address, uint64_t transfer) {
  for (const auto& [block, index] : live_) {
    const std::byte* first = arena_.address(block);
    if (address < first || address >= first + block->bytes) continue;
    LoggedAllocation& allocation = history_.all[index];
    if (allocation.sent != LoggedAllocation::never) return;
    allocation.sent = next_event();
    allocation.transfer = transfer;
    return;
  }
}

}  // namespace spool
