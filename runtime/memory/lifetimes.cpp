#include "spool/runtime/memory/lifetimes.h"

#include <utility>

namespace spool {

LifetimeRecorder::LifetimeRecorder(Arena& arena) : arena_(arena) {
  check(!arena.recorder_, "lifetimes: the arena has a recorder already");
  arena.recorder_ = this;
}

LifetimeRecorder::~LifetimeRecorder() {
  if (arena_.recorder_ == this) arena_.recorder_ = nullptr;
}

Lifetimes LifetimeRecorder::finish() {
  arena_.recorder_ = nullptr;
  for (const Lifetime& l : lifetimes_.all) {
    check(
        l.death > 0, "lifetimes: ", l.label.name, " (", name(l.label.purpose), "), ", l.bytes,
        " bytes, is still live when the recording ends, and only allocations that the step frees ",
        "can be placed; allocate it before the step");
  }
  return std::move(lifetimes_);
}

void LifetimeRecorder::begin_phase(size_t phase) {
  std::vector<Lifetimes::Phase>& phases = lifetimes_.phases;
  const size_t next = lifetimes_.all.size();
  if (phase >= phases.size()) phases.resize(phase + 1);
  check(phases[phase].end == 0, "lifetimes: phase ", phase, " was recorded before");
  phases[phase] = {.begin = next, .end = next};
  phase_ = phase;
}

void LifetimeRecorder::record_birth(const Arena::Block* block, size_t bytes, const Label& label) {
  if (paused_) return;
  if (lifetimes_.phases.empty()) begin_phase(0);
  live_[block] = lifetimes_.all.size();
  lifetimes_.all.push_back({.bytes = bytes, .label = label, .birth = time_++});
  lifetimes_.phases[phase_].end = lifetimes_.all.size();
}

void LifetimeRecorder::record_death(const Arena::Block* block) {
  const auto at = live_.find(block);
  if (at == live_.end()) return;
  lifetimes_.all[at->second].death = time_++;
  live_.erase(at);
}

}  // namespace spool
