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

TraceContext AllocationLog::note_work() {
  const TraceContext work = work_();
  if (work && !is_copy(work)) last_work_ = work;
  return work;
}

void AllocationLog::record_birth(const Arena::Block* block) {
  live_[block] = history_.all.size();
  const size_t birth = next_event();
  history_.all.push_back(
      {.bytes = block->bytes, .label = block->label, .birth = birth, .born_in = note_work()});
}

void AllocationLog::record_death(const Arena::Block* block) {
  const auto at = live_.find(block);
  if (at == live_.end()) return;
  LoggedAllocation& allocation = history_.all[at->second];
  allocation.death = next_event();
  note_work();
  allocation.died_in = last_work_;
  live_.erase(at);
}

LoggedAllocation* AllocationLog::live_at(const std::byte* address) {
  for (const auto& [block, index] : live_) {
    const std::byte* first = arena_.address(block);
    if (address >= first && address < first + block->bytes) return &history_.all[index];
  }
  return nullptr;
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

}  // namespace spool
