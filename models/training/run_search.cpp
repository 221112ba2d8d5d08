#include "spool/models/training/run_search.h"

#include <chrono>
#include <map>
#include <tuple>

#include "spool/models/inference/evaluator.h"
#include "spool/models/steps/step_search.h"

namespace spool {
namespace {

Levers levers_of(const TrainingConfig& config, const RunRequest& request, const Machine& machine) {
  Levers levers{.placement = request.choose.placement && !request.plan};
  if (!request.choose.loss_chunk || request.plan) levers.loss_rows = config.loss_chunk;
  levers.state_share = request.choose.state_share && !request.plan;
  levers.regions = levers.placement && request.choose.regions;
  if (levers.placement) levers.send_to = request.choose.send_to;
  levers.host_bytes = request.choose.host_bytes;
  levers.fixed = request.plan ? *request.plan : make_plans(config, request.policy, machine).step;
  return levers;
}

// The search that chooses what is recomputed, whatever is set by hand.
Levers free_levers(const TrainingConfig& config, const RunRequest& request, const Levers& levers) {
  Levers chosen = levers;
  chosen.placement = true;
  chosen.regions = request.choose.regions && !request.plan;
  chosen.fixed = make_plans(config).step;
  chosen.fixed.optimizer_state = levers.fixed.optimizer_state;
  chosen.fixed.state_bytes_on_device = levers.fixed.state_bytes_on_device;
  return chosen;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

struct RunSearch::Parts {
  TrainingConfig config;
  RunRequest request;
  Machine machine;
  Levers levers;
  // By the rows of an evaluation that are live at a time, and the place of the optimizer's state.
  std::map<std::tuple<int64_t, int64_t, OptimizerState, size_t>, size_t> other_peaks = {};
  std::unique_ptr<Search> search = {};
  // What could be chosen, if what is recomputed is set by hand.
  std::unique_ptr<Search> free_search = {};
  double seconds = 0;  // that it took to begin

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
    const size_t peak = rehearse_others(config, plans(step, rows), machine, request.sample);
    other_peaks.emplace(key, peak);
    return peak;
  }

  std::unique_ptr<Search> search_with(Levers some) {
    const auto others = [this](int64_t loss_rows, const Plan& step) {
      return other_peak(loss_rows, step);
    };
    return std::make_unique<Search>(searched_step(describe_step(config), machine, others),
                                    std::move(some));
  }

  // The result, compared with what could be chosen.
  SearchResult compared(SearchResult result, size_t limit) const {
    result.plan_seconds += seconds;
    if (free_search) {
      const SearchResult best = free_search->plan(limit);
      result.keep_all_peak = best.keep_all_peak;
      result.keep_all_seconds = best.keep_all_seconds;
      result.lower_bound = best.lower_bound;
      result.rehearsals += best.rehearsals;
      result.plan_seconds += best.plan_seconds;
    }
    // Copies that are set by hand overlap with work in ways that no bound is known for.
    const bool copies = levers.fixed.optimizer_state != OptimizerState::device;
    if (copies || offloads(levers.fixed)) result.lower_bound = 0;
    return result;
  }

  PlannedRun run_of(SearchResult result, size_t limit) const {
    PlannedRun run{.search = compared(std::move(result), limit), .limit = limit};
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
  const auto start = std::chrono::steady_clock::now();
  const TrainingConfig config = with_nodes_in_chunks(any_config, request);
  if (request.plan) {
    const Plan own = make_plans(config, request.policy, machine).step;
    check_given(*request.plan, own, request, config);
  }
  Levers levers = levers_of(config, request, machine);
  parts_ = std::make_unique<Parts>(Parts{.config = config,
                                         .request = std::move(request),
                                         .machine = machine,
                                         .levers = std::move(levers)});
  Parts& p = *parts_;
  p.search = p.search_with(p.levers);
  if (!p.levers.placement) p.free_search = p.search_with(free_levers(config, p.request, p.levers));
  p.seconds = seconds_since(start);
}

RunSearch::~RunSearch() = default;

PlannedRun RunSearch::plan(size_t limit) {
  return parts_->run_of(parts_->search->plan(limit), limit);
}

PlannedRun RunSearch::keep_all_or_plan(size_t limit) {
  return parts_->run_of(parts_->search->keep_all_or_plan(limit), limit);
}

bool RunSearch::can_choose_within(size_t limit) {
  return parts_->free_search && parts_->free_search->plan(limit).fits;
}

size_t RunSearch::smallest_budget() { return parts_->search->smallest_budget(); }

size_t RunSearch::keep_all_peak() {
  const Parts& p = *parts_;
  return (p.free_search ? p.free_search : p.search)->keep_all_peak();
}

}  // namespace spool
