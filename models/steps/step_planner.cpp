#include "spool/models/steps/step_planner.h"

#include <algorithm>
#include <map>

#include "spool/models/steps/refusal.h"
#include "spool/planner/report/simple_policies.h"

namespace spool {
namespace {

Levers levers_of(const StepDescription& step, const StepRequest& request, const Machine& machine) {
  const Choices choose = request.choices();
  const Policy policy = request.given_policy();
  Levers levers{.placement = choose.placement};
  if (!choose.loss_chunk) levers.loss_rows = policy.loss_chunk;
  levers.state_share = choose.state_share;
  levers.regions = levers.placement && choose.regions;
  if (levers.placement) levers.offload_to = choose.offload_to;
  levers.host_bytes = choose.host_bytes;
  levers.fixed = request.plan ? *request.plan : plan_step(step, policy, machine);
  return levers;
}

// The search that may choose what is recomputed, whatever is set by hand.
Levers free_levers(const StepDescription& step, const StepRequest& request, const Levers& levers) {
  Levers chosen = levers;
  chosen.placement = true;
  chosen.regions = request.choices().regions;
  chosen.fixed = plan_step(step, with_chunks({}, chunks_of(request.given_policy())), Machine{});
  chosen.fixed.optimizer_state = levers.fixed.optimizer_state;
  chosen.fixed.state_bytes_on_device = levers.fixed.state_bytes_on_device;
  return chosen;
}

// The chunks of a plan that was made from this policy.
StepChunks chunks_of(const Plan& plan, int64_t loss_rows, const Policy& policy) {
  StepChunks chunks = chunks_of(policy);
  chunks.loss_rows = loss_rows;
  if (chunks.mlp_rows == 0) chunks.nodes = nodes_in_chunks(plan);
  return chunks;
}

// The smallest peak of the run's other work, computed once for each place of the state.
OtherPeak other_peak_of(const RunSteps& run) {
  if (!run.others) return {};
  const auto known = std::make_shared<std::map<std::pair<OptimizerState, size_t>, size_t>>();
  return [run, known](const Plan& plan) {
    const auto [at, is_new] =
        known->try_emplace({plan.optimizer_state, plan.state_bytes_on_device});
    if (is_new) at->second = run.others(plan, /*limit=*/0, /*most=*/0).peak;
    return at->second;
  };
}

}  // namespace

SearchedStep searched_step(const StepDescription& step, const Machine& machine,
                           OtherPeak other_peak) {
  const StepDescription distinct = with_micro_batches(step, distinct_micro_batches);
  if (!other_peak) other_peak = [](const Plan&) { return size_t{0}; };
  return {.machine = machine,
          .micro_batches = step.config.accumulate,
          .rehearse =
              [distinct, machine](const Plan& plan, const std::optional<Layout>& layout,
                                  const RehearsalOptions& asked) {
                return rehearse_step(distinct, {.step = plan, .layout = layout}, machine, asked);
              },
          .rehearse_tape =
              [step, machine](const Plan& plan) { return rehearse_tape(step, plan, machine); },
          .other_peak = std::move(other_peak)};
}

struct StepPlanner::Searches {
  double start = host_clock();
  OtherPeak other_peak;
  Levers levers;
  Search by_request;
  // A search that may choose what is recomputed, if that is set by hand.
  std::optional<Search> by_choice = {};
  double seconds = 0;  // the duration of the preparation

  Searches(const RunSteps& run, const StepRequest& request, const Machine& machine)
      : other_peak(other_peak_of(run)),
        levers(levers_of(run.step, request, machine)),
        by_request(searched_step(run.step, machine, other_peak), levers) {
    if (!levers.placement) {
      by_choice.emplace(searched_step(run.step, machine, other_peak),
                        free_levers(run.step, request, levers));
    }
    seconds = host_clock() - start;
  }
};

StepPlanner::StepPlanner(RunSteps run, RunRequest request, const Machine& machine)
    : run_(std::move(run)), request_(std::move(request)), machine_(machine) {}

StepPlanner::~StepPlanner() = default;

StepPlanner::Searches& StepPlanner::searches() {
  if (!searches_) searches_ = std::make_unique<Searches>(run_, request_.steps, machine_);
  return *searches_;
}

// Compares the result with what could be chosen, if something is set by hand.
SearchResult StepPlanner::compared(SearchResult result, size_t limit) {
  Searches& all = searches();
  result.plan_seconds += all.seconds;
  if (all.by_choice) {
    const SearchResult best = all.by_choice->plan(limit);
    result.keep_all_peak = best.keep_all_peak;
    result.keep_all_seconds = best.keep_all_seconds;
    result.lower_bound = best.lower_bound;
    result.rehearsals += best.rehearsals;
    result.plan_seconds += best.plan_seconds;
  }
  // No bound is known if copies are set by hand: how they overlap with work is open.
  const Plan& fixed = all.levers.fixed;
  if (fixed.optimizer_state != OptimizerState::device || offloads(fixed)) result.lower_bound = 0;
  return result;
}

SearchResult StepPlanner::search_within(size_t limit) {
  return compared(searches().by_request.plan(limit), limit);
}

StepPlans StepPlanner::plans_by(const Plan& plan) const {
  return {.step = plan,
          .graph = request_.steps.graph,
          .spill_directory = request_.steps.spill_directory};
}

// Fills in what is foretold of the plans.
PlannedSteps StepPlanner::foretold(PlannedSteps planned) const {
  Report& report = planned.foretold;
  report = foretell_step(run_.step, planned.plans, machine_, {.at_peak = true});
  if (run_.others) {
    // Without a limit, other work takes no more than the step, if it can.
    const size_t limit = planned.limit ? planned.limit : report.memory.peak;
    const size_t most = planned.limit ? planned.limit : std::max(limit, request_.steps.free);
    const MemoryStats others = run_.others(planned.plans.step, limit, most);
    if (others.peak > report.memory.peak) report.memory = others;
  }
  planned.plans.host_bytes = report.host.peak;
  planned.plans.disk_bytes = report.disk.peak;
  planned.budget = report.memory.peak;
  return planned;
}

PlannedSteps StepPlanner::as_given() const {
  const StepRequest& request = request_.steps;
  const Policy policy = request.given_policy();
  PlannedSteps planned{
      .plans = plans_by(request.plan ? *request.plan : plan_step(run_.step, policy, machine_)),
      .chunks = chunks_of(policy),
      .limit = request.budget};
  planned.plans.layout = lay_out_step(run_.step, planned.plans, machine_);
  return foretold(std::move(planned));
}

PlannedSteps StepPlanner::found(SearchResult result, size_t limit) const {
  const FoundPlan& found = result.found;
  PlannedSteps planned{
      .plans = plans_by(found.plan),
      .chunks = chunks_of(found.plan, found.loss_rows, request_.steps.given_policy()),
      .limit = limit,
      .is_chosen = true};
  planned.plans.layout = found.layout;
  planned.search = std::move(result);
  return foretold(std::move(planned));
}

PlannedSteps StepPlanner::plan() {
  const size_t budget = request_.steps.budget, limit = budget ? budget : request_.steps.free;
  const bool may_choose = request_.steps.choices().any();
  PlannedSteps planned;
  if (!may_choose || !budget) planned = as_given();
  if (may_choose && (budget || planned.budget > limit)) {
    planned = found(search_within(limit), limit);
  } else if (request_.compares) {
    planned.search = budget ? search_within(limit)
                            : compared(searches().by_request.keep_all_or_plan(limit), limit);
  }
  planned.has_budget = budget > 0;
  planned.program_bytes = request_.program_bytes;
  if (budget) planned.budget = budget;
  planned.limit = planned.search ? limit : planned.budget;
  planned.refusal = refuse(planned, run_, request_, machine_);
  return planned;
}

PlannedSteps StepPlanner::plan_within(size_t bytes) {
  PlannedSteps planned = found(search_within(bytes), bytes);
  planned.has_budget = true;
  return planned;
}

bool StepPlanner::can_choose_within(size_t bytes) {
  auto& by_choice = searches().by_choice;
  return by_choice && by_choice->plan(bytes).fits;
}

size_t StepPlanner::smallest_budget() { return searches().by_request.smallest_budget(); }

size_t StepPlanner::keep_all_peak() {
  Searches& all = searches();
  return (all.by_choice ? *all.by_choice : all.by_request).keep_all_peak();
}

Frontier StepPlanner::frontier() {
  constexpr size_t steps = 20;
  const size_t min = smallest_budget(), max = std::max(keep_all_peak(), min);
  Frontier frontier;
  for (size_t i = 0; i <= steps; ++i) {
    frontier.points.push_back(plan_within(i == steps ? max : min + (max - min) / steps * i));
  }
  return frontier;
}

std::vector<PolicyPoint> StepPlanner::policies() {
  Policy rest = request_.steps.given_policy();
  rest.offload = Offloading::none;
  const SearchedStep step = searched_step(run_.step, machine_);
  const OtherPeak& other_peak = searches().other_peak;
  std::vector<PolicyPoint> points;
  for (const SimplePolicy& policy : policies_by_hand(step, rest)) {
    const FoundPlan found = lay_out_plan(step, policy.plan, rest.loss_chunk);
    const size_t others = other_peak ? other_peak(found.plan) : 0;
    points.push_back(
        {.name = policy.name, .peak = std::max(found.peak, others), .seconds = found.seconds});
  }
  return points;
}

}  // namespace spool
