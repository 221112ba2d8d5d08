#include "spool/models/training/run_search.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "spool/models/inference/evaluator.h"
#include "spool/models/steps/step_search.h"
#include "spool/planner/search/simple_policies.h"

namespace spool {

struct RunSearch::Parts {
  TrainingConfig config;
  RunRequest request;
  Machine machine;
  // By the rows of an evaluation that are live at a time, and the place of the optimizer's state.
  std::map<std::tuple<int64_t, int64_t, OptimizerState, size_t>, size_t> other_peaks = {};
  std::unique_ptr<StepSearch> search = {};

  // The configuration with the chunks of a plan of its step.
  TrainingConfig with_chunks(const Plan& step, int64_t loss_rows) const {
    TrainingConfig in_chunks = config;
    in_chunks.loss_chunk = loss_rows;
    if (config.mlp_chunk == 0) in_chunks.in_chunks = nodes_in_chunks(step);
    return in_chunks;
  }

  TrainingPlans plans(const Plan& step, const ChunkRows& rows) const {
    TrainingPlans plans;
    plans.step = step;
    plans.graph = request.graph;
    plans.spill_directory = request.spill_directory;
    plans.evaluation = plan_evaluation(config.model, config.dtype, config.batch, config.seq, rows);
    return plans;
  }

  size_t other_peak(int64_t loss_rows, const Plan& of_step) {
    const ChunkRows rows = with_chunks(of_step, loss_rows).evaluation_rows();
    const std::tuple key(rows.loss, rows.mlp, of_step.optimizer_state,
                         of_step.state_bytes_on_device);
    const auto known = other_peaks.find(key);
    if (known != other_peaks.end()) return known->second;
    const Plan step{.optimizer_state = of_step.optimizer_state,
                    .state_bytes_on_device = of_step.state_bytes_on_device};
    const size_t peak = rehearse_others(config, plans(step, rows), machine, request.sample).peak;
    other_peaks.emplace(key, peak);
    return peak;
  }

  PlannedRun run_of(SearchResult result, size_t limit) const {
    PlannedRun run{.search = std::move(result), .limit = limit};
    const FoundPlan& found = run.search->found;
    run.config = with_chunks(found.plan, found.loss_rows);
    run.plans = plans(found.plan, run.config.evaluation_rows());
    run.plans.layout = found.layout;
    run.foretold = rehearse_training(run.config, run.plans, machine, request.sample);
    run.plans.host_bytes = run.foretold.host.peak;
    run.plans.disk_bytes = run.foretold.disk.peak;
    run.budget = run.foretold.memory.peak;
    return run;
  }
};

RunSearch::RunSearch(const TrainingConfig& any_config, RunRequest request, const Machine& machine) {
  const TrainingConfig config = with_nodes_in_chunks(any_config, request);
  if (request.plan) {
    const Plan own = make_plans(config, request.policy, machine).step;
    check_given(*request.plan, own, request, config);
  }
  const StepRequest of_steps = step_request(config, request);
  parts_ = std::make_unique<Parts>(
      Parts{.config = config, .request = std::move(request), .machine = machine});
  const auto others = [&parts = *parts_](int64_t loss_rows, const Plan& step) {
    return parts.other_peak(loss_rows, step);
  };
  parts_->search = std::make_unique<StepSearch>(describe_step(config), of_steps, machine, others);
}

RunSearch::~RunSearch() = default;

PlannedRun RunSearch::plan(size_t limit) {
  PlannedRun run = parts_->run_of(parts_->search->plan(limit), limit);
  run.has_budget = true;
  return run;
}

PlannedRun RunSearch::keep_all_or_plan(size_t limit) {
  return parts_->run_of(parts_->search->keep_all_or_plan(limit), limit);
}

bool RunSearch::can_choose_within(size_t limit) { return parts_->search->can_choose_within(limit); }

size_t RunSearch::smallest_budget() { return parts_->search->smallest_budget(); }

size_t RunSearch::keep_all_peak() { return parts_->search->keep_all_peak(); }

std::vector<PolicyPoint> RunSearch::policies() {
  Parts& parts = *parts_;
  Policy rest = with_chunks_of(parts.config, parts.request.policy);
  rest.offload = Offloading::none;
  const SearchedStep step = searched_step(describe_step(parts.config), parts.machine);
  std::vector<PolicyPoint> points;
  for (const SimplePolicy& policy : policies_by_hand(step, rest)) {
    const FoundPlan found = lay_out_plan(step, policy.plan, rest.loss_chunk);
    const size_t others = parts.other_peak(rest.loss_chunk, found.plan);
    points.push_back(
        {.name = policy.name, .peak = std::max(found.peak, others), .seconds = found.seconds});
  }
  return points;
}

}  // namespace spool
