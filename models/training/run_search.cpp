#include "spool/models/training/run_search.h"

#include <algorithm>
#include <map>

#include "spool/models/inference/evaluator.h"

namespace spool {
namespace {

// A plan that was given has its own chunks, and fixes everything.
TrainingConfig with_chunks(const TrainingConfig& config, RunRequest request,
                           const Machine& machine) {
  if (!request.plan) return config;
  request.limit.reset();
  return plan_run(config, request, machine).config;
}

Levers levers_of(const TrainingConfig& config, const RunRequest& request, const Machine& machine) {
  Levers levers{.placement = request.choose.placement && !request.plan};
  if (!request.choose.loss_chunk || request.plan) levers.loss_rows = config.loss_chunk;
  levers.fixed = request.plan ? *request.plan : make_plans(config, request.policy, machine).step;
  return levers;
}

}  // namespace

struct RunSearch::Parts {
  TrainingConfig config;
  RunRequest request;
  Machine machine;
  OptimizerState state;
  std::map<int64_t, size_t> other_peaks = {};  // by the rows of a chunk of the loss
  std::unique_ptr<Search> search = {};

  TrainingPlans plans(const Plan& step, int64_t loss_rows) const {
    TrainingPlans plans;
    plans.step = step;
    plans.graph = request.graph;
    plans.spill_directory = request.spill_directory;
    plans.evaluation = plan_evaluation(config.model, config.dtype, config.batch, config.seq,
                                       {.loss = loss_rows, .mlp = config.mlp_chunk});
    return plans;
  }

  RehearsedStep rehearse(const Plan& plan, const std::optional<Layout>& layout,
                         const AskedOfRehearsal& asked) const {
    TrainingConfig distinct = config;
    distinct.accumulate = std::min(config.accumulate, distinct_micro_batches);
    StepPlans plans{.step = plan, .graph = request.graph};
    plans.spill_directory = request.spill_directory;
    plans.layout = layout;
    return rehearse_step(distinct, plans, machine, asked);
  }

  size_t other_peak(int64_t loss_rows) {
    const auto known = other_peaks.find(loss_rows);
    if (known != other_peaks.end()) return known->second;
    const size_t peak = rehearse_others(config, plans({.optimizer_state = state}, loss_rows),
                                        machine, request.sample);
    other_peaks.emplace(loss_rows, peak);
    return peak;
  }

  SearchedStep searched_step() {
    return {
        .machine = machine,
        .micro_batches = config.accumulate,
        .rehearse = [this](const Plan& plan, const std::optional<Layout>& layout,
                           const AskedOfRehearsal& asked) { return rehearse(plan, layout, asked); },
        .rehearse_tape =
            [this](const Plan& plan) {
              return spool::rehearse_tape(describe_step(config), plan, machine);
            },
        .other_peak = [this](int64_t loss_rows) { return other_peak(loss_rows); }};
  }
};

RunSearch::RunSearch(const TrainingConfig& given, RunRequest request, const Machine& machine) {
  const TrainingConfig config = with_chunks(given, request, machine);
  Levers levers = levers_of(config, request, machine);
  parts_ = std::make_unique<Parts>(Parts{.config = config,
                                         .request = std::move(request),
                                         .machine = machine,
                                         .state = levers.fixed.optimizer_state});
  parts_->search = std::make_unique<Search>(parts_->searched_step(), std::move(levers));
}

RunSearch::~RunSearch() = default;

PlannedRun RunSearch::plan(size_t limit) {
  const Parts& p = *parts_;
  PlannedRun run{.config = p.config, .search = parts_->search->plan(limit), .limit = limit};
  const FoundPlan& found = run.search->found;
  run.config.loss_chunk = found.loss_rows;
  run.plans = p.plans(found.plan, found.loss_rows);
  run.plans.layout = found.layout;
  run.foretold = rehearse_training(run.config, run.plans, p.machine, p.request.sample);
  run.plans.host_bytes = run.foretold.host.peak;
  run.plans.disk_bytes = run.foretold.disk.peak;
  run.budget = run.foretold.memory.peak;
  return run;
}

size_t RunSearch::smallest_budget() { return parts_->search->smallest_budget(); }

size_t RunSearch::keep_all_peak() { return parts_->search->keep_all_peak(); }

}  // namespace spool
