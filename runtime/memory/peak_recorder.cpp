#include "spool/runtime/memory/peak_recorder.h"

#include <algorithm>
#include <utility>

namespace spool {

PeakRecorder::PeakRecorder(Arena& arena) : arena_(arena) {
  check(!arena.peak_recorder_, "peak: what is live at the arena's peak is recorded already");
  arena.peak_recorder_ = this;
}

PeakRecorder::~PeakRecorder() { arena_.peak_recorder_ = nullptr; }

TraceContext PeakRecorder::enter(const TraceContext& work) { return std::exchange(work_, work); }

void PeakRecorder::record_birth(const Arena::Block* block, size_t bytes, const Spec& spec,
                                const Label& label) {
  live_[block] = {
      .birth = births_++,
      .allocation = {.bytes = bytes, .spec = spec, .label = label, .work = work_},
  };
}

void PeakRecorder::record_death(const Arena::Block* block) {
  const auto at = live_.find(block);
  if (at == live_.end()) return;
  if (at->second.birth < births_at_peak_) died_since_peak_.push_back(at->second);
  live_.erase(at);
}

void PeakRecorder::record_peak() {
  died_since_peak_.clear();
  births_at_peak_ = births_;
}

std::vector<PeakAllocation> PeakRecorder::at_peak() const {
  std::vector<Born> born = died_since_peak_;
  for (const auto& [block, live] : live_) {
    if (live.birth < births_at_peak_) born.push_back(live);
  }
  std::ranges::sort(born, {}, &Born::birth);
  std::vector<PeakAllocation> all;
  all.reserve(born.size());
  for (const Born& b : born) all.push_back(b.allocation);
  return all;
}

}  // namespace spool
