#include "spool/planner/search/trials.h"

#include <algorithm>
#include <utility>

#include "spool/planner/offsets.h"
#include "spool/planner/search/measured_options.h"
#include "spool/runtime/hash.h"

namespace spool {
namespace {

uint64_t hash_of(const Plan& plan) {
  Hash hash(0);
  for (ValueId v = 0; v < plan.placement.next_id(); ++v) {
    hash.add(static_cast<uint64_t>(plan.placement[v]));
  }
  for (const Region& r : plan.regions) {
    for (const int64_t number : {r.first, r.last, r.chunks}) hash.add(number);
  }
  for (NodeId n = 0; n < plan.chunks.next_id(); ++n) hash.add(int64_t{plan.chunks[n]});
  for (const Offload& o : plan.offloads) {
    hash.add(int64_t{o.value});
    hash.add(o.rows);
  }
  hash.add(uint64_t{plan.state_bytes_on_device});
  return hash.state();
}

}  // namespace

Trials::Trial& Trials::of(Plan plan, int64_t loss_rows) {
  const uint64_t hash = hash_of(plan);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (at->second->found.plan == plan) return *at->second;
  }
  ++rehearsals_;
  Trial& trial = all_.emplace_back();
  by_hash_.emplace(hash, &trial);
  FoundPlan& found = trial.found;
  found.plan = std::move(plan);
  found.loss_rows = loss_rows;
  const RehearsedStep rehearsed = step_.rehearse(found.plan, std::nullopt, {.survey = true});
  const Report& report = rehearsed.report;
  const SurveyedWork& peak = *rehearsed.survey.peak();
  trial.other_peak = other_peak(found.plan, peak.live);
  found.binding =
      peak.live < trial.other_peak ? "an evaluation or a text sample" : description(peak);
  found.seconds = step_seconds(rehearsed, step_.micro_batches);
  found.host_bytes = report.host.peak;
  found.disk_bytes = report.disk.peak;
  found.peak = trial.live = std::max(peak.live, trial.other_peak);
  trial.best_fit = report.memory.peak;
  return trial;
}

// With all of the state on the device, other work takes no fewer bytes than with a part of it.
size_t Trials::other_peak(const Plan& plan, size_t live) const {
  Plan most{.optimizer_state = plan.optimizer_state};
  take_homes(most, plan);
  if (plan.state_bytes_on_device > 0) most.state_bytes_on_device = MetaStream::unlimited;
  const size_t bytes = step_.other_peak(most);
  return bytes <= live ? bytes : step_.other_peak(plan);
}

const FoundPlan& Trials::laid_out(Trial& trial, size_t bytes) {
  if (trial.is_laid_out || trial.live > bytes) return trial.found;
  trial.is_laid_out = true;
  // The lifetimes of all trials would take much memory, and few are laid out.
  RehearsedStep rehearsed = step_.rehearse(trial.found.plan, std::nullopt, {.lifetimes = true});
  trial.found.layout = assign_offsets(std::move(rehearsed.lifetimes));
  rehearsals_ += 2;
  const size_t placed = step_.rehearse(trial.found.plan, trial.found.layout, {}).report.memory.peak;
  if (placed >= trial.best_fit) trial.found.layout.reset();
  trial.found.peak = std::max(std::min(placed, trial.best_fit), trial.other_peak);
  return trial.found;
}

}  // namespace spool
