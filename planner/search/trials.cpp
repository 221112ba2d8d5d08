#include "spool/planner/search/trials.h"

#include <algorithm>
#include <utility>

#include "spool/planner/offsets.h"

namespace spool {

const FoundPlan& Trials::plan_of(const Proposal& proposal, size_t bytes) {
  const auto known = std::ranges::find(all_, proposal, &Trial::proposal);
  Trial& trial = known == all_.end() ? begin(proposal) : *known;
  if (trial.rehearsed && trial.found.peak <= bytes) lay_out(trial);
  return trial.found;
}

Trials::Trial& Trials::begin(const Proposal& proposal) {
  ++rehearsals_;
  Trial& trial = all_.emplace_back(Trial{.proposal = proposal});
  FoundPlan& found = trial.found;
  found.plan = proposer_.plan_of(proposal);
  found.loss_rows = measured_.rows[proposal.choice.row_choice];
  trial.rehearsed = step_.rehearse(found.plan, std::nullopt, {.survey = true, .lifetimes = true});
  const Report& report = trial.rehearsed->report;
  const SurveyedWork& peak = *trial.rehearsed->survey.peak();
  trial.other_peak = step_.other_peak(found.loss_rows, found.plan);
  found.binding =
      peak.live < trial.other_peak ? "an evaluation or a text sample" : description(peak);
  found.seconds = step_seconds(*trial.rehearsed, step_.micro_batches);
  found.host_bytes = report.host.peak;
  found.disk_bytes = report.disk.peak;
  found.peak = std::max(peak.live, trial.other_peak);
  return trial;
}

void Trials::lay_out(Trial& trial) {
  RehearsedStep rehearsed = *std::exchange(trial.rehearsed, std::nullopt);
  const size_t best_fit = rehearsed.report.memory.peak;
  trial.found.layout = spool::lay_out(std::move(rehearsed.lifetimes));
  ++rehearsals_;
  const size_t placed = step_.rehearse(trial.found.plan, trial.found.layout, {}).report.memory.peak;
  if (placed >= best_fit) trial.found.layout.reset();
  trial.found.peak = std::max(std::min(placed, best_fit), trial.other_peak);
}

}  // namespace spool
