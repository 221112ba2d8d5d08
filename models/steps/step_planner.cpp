#include "spool/models/steps/step_planner.h"

#include <algorithm>

#include "spool/models/steps/chunks/chunk_choice.h"
#include "spool/models/steps/chunks/parts_choice.h"
#include "spool/models/steps/exchange/buckets_choice.h"
#include "spool/models/steps/refusal.h"
#include "spool/models/steps/step_searches.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/report/simple_policies.h"
#include "spool/planner/search/measured_options.h"

namespace spool {

StepPlanner::StepPlanner(RunSteps run, RunRequest request, const Machine& machine)
    : run_(std::move(run)), request_(std::move(request)), machine_(machine) {}

StepPlanner::~StepPlanner() = default;

const PartsChoice& StepPlanner::parts() const {
  if (!parts_) parts_ = std::make_unique<PartsChoice>(run_.step, machine_);
  return *parts_;
}

StepPlanner::Searches& StepPlanner::searches() {
  if (!searches_) searches_ = std::make_unique<Searches>(run_, request_.steps, machine_, parts());
  return *searches_;
}

StepChunks StepPlanner::chunks_with_parts(StepChunks chunks, const Plan& plan) const {
  std::erase_if(chunks.nodes, [](const NodesInChunks& n) { return n.last < 0; });
  const std::vector<NodesInChunks> kept = parts_in(request_.steps.given_policy().in_chunks);
  std::ranges::copy(parts() ? parts().of(plan) : kept, std::back_inserter(chunks.nodes));
  return chunks;
}

// Compares the result with what could be chosen, if something is set by hand, in any chunks.
SearchResult StepPlanner::compared(SearchResult result, size_t limit) {
  Searches& all = searches();
  const SearchResult kept = all.by_choice().comparison(result.fits ? limit : result.found.peak);
  result.keep_all_peak = kept.keep_all_peak;
  result.keep_all_seconds = kept.keep_all_seconds;
  const double slowed = all.slowed_by_parts();
  result.keep_all_seconds -= slowed;
  result.lower_bound = std::max(kept.lower_bound - slowed, 0.0);
  if (!all.own_is_nominal() || !all.levers.placement) result.rehearsals += kept.rehearsals;
  // No bound is known if copies are set by hand: how they overlap with work is open.
  const Plan& fixed = all.levers.fixed;
  const bool has_copies =
      fixed.optimizer_state != OptimizerState::device || offloads(fixed) || uses_homes(fixed);
  if (has_copies) result.lower_bound = 0;
  // Measured kernels of chunks that were not rehearsed may be faster than the bound assumes.
  const double seconds = result.found.seconds;
  if (machine_.kernels && seconds > 0) result.lower_bound = std::min(result.lower_bound, seconds);
  return result;
}

void StepPlanner::compare(PlannedSteps& planned) {
  if (!planned.search && !request_.compares) return;
  const double start = host_clock();
  const bool is_found = planned.search.has_value();
  if (!is_found) planned.limit = room();
  const double before = is_found ? planned.search->plan_seconds : 0;
  planned.search = compared(is_found ? *std::move(planned.search) : SearchResult{}, planned.limit);
  if (is_found && request_.compares) {
    planned.slowed_by_chunks = slowed_by_chunks(planned, planned.limit);
  }
  planned.search->plan_seconds = before + host_clock() - start;
}

double StepPlanner::lower_bound() { return compared({}, room()).lower_bound; }

double StepPlanner::expected_seconds() {
  Searches& all = searches();
  return all.by_choice().expected_seconds(room()) - all.slowed_by_parts();
}

// Bytes that a search may use.
size_t StepPlanner::room() const {
  return request_.steps.budget ? request_.steps.budget : request_.steps.free;
}

PlannedSteps StepPlanner::search_within(size_t limit) {
  const double start = host_clock();
  Searches& all = searches();
  SearchResult result;
  int threads = 0;
  for (const int each : all.chunks.threads()) {
    threads = each;
    result = all.found(threads, limit);
    if (result.fits) break;
  }
  result.plan_seconds = host_clock() - start;
  PlannedSteps planned = found(std::move(result), limit);
  if (all.chooses_chunks) planned.chunks_hold_for_threads = threads;
  return planned;
}

// By what part of the step's time it would be faster if chunks were chosen by the run's own clock
// and for its own threads; 0 if that is little.
double StepPlanner::slowed_by_chunks(const PlannedSteps& planned, size_t limit) {
  constexpr double worth_saying = 0.99;
  Searches& all = searches();
  const SearchResult& own = *planned.search;
  const double seconds = own.found.seconds;
  // By rates alone the clocks of a kind of device agree, to a fraction of a percent.
  const bool is_alike =
      !machine_.kernels && planned.chunks_hold_for_threads == threads_of(machine_);
  if (!all.chooses_chunks || !own.fits || is_alike) return 0;
  if (own.lower_bound >= worth_saying * seconds) return 0;
  const SearchResult free = all.by_request().plan(limit);
  return free.found.seconds < worth_saying * seconds ? 1 - free.found.seconds / seconds : 0;
}

StepPlans StepPlanner::plans_by(const Plan& plan) const {
  StepPlans plans{.step = plan,
                  .graph = request_.steps.graph,
                  .spill_directory = request_.steps.spill_directory};
  if (const int n = request_.steps.buckets_in_flight) plans.step.buckets_in_flight = n;
  return plans;
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
  FoundPlan given{.plan = request.plan ? *request.plan : plan_step(run_.step, policy, machine_)};
  if (is_free(request, parts())) {
    given = parts().within(searched_step(run_.step, machine_), std::move(given),
                           request.budget ? request.budget : request.free);
  }
  PlannedSteps planned{.plans = plans_by(given.plan),
                       .chunks = chunks_with_parts(chunks_of(policy), given.plan),
                       .limit = request.budget};
  planned.plans.layout = lay_out_step(run_.step, planned.plans, machine_);
  return foretold(std::move(planned));
}

PlannedSteps StepPlanner::found(SearchResult result, size_t limit) const {
  const FoundPlan& found = result.found;
  PlannedSteps planned{
      .plans = plans_by(found.plan),
      .chunks = chunks_with_parts(
          chunks_of(found.plan, found.loss_rows, request_.steps.given_policy()), found.plan),
      .limit = limit,
      .is_chosen = true};
  planned.plans.layout = found.layout;
  planned.search = std::move(result);
  return foretold(std::move(planned));
}

void StepPlanner::exchange_at_a_time(int buckets) {
  if (std::exchange(request_.steps.buckets_in_flight, buckets) == buckets) return;
  if (searches_ && buckets < searches_->buckets_of_chunks) searches_.reset();
  if (searches_) searches_->begin_again();
}

PlannedSteps StepPlanner::plan() {
  PlannedSteps planned = plan_only();
  compare(planned);
  return planned;
}

PlannedSteps StepPlanner::plan_only() {
  PlannedSteps planned = plan_buckets(run_, request_, machine_, [this](int buckets) {
    exchange_at_a_time(buckets);
    return plan_all_else();
  });
  exchange_at_a_time(planned.plans.step.buckets_in_flight);
  planned.refusal = refuse(planned, run_, request_, machine_);
  return planned;
}

PlannedSteps StepPlanner::plan_all_else() {
  const size_t budget = request_.steps.budget, limit = room();
  const bool may_choose = request_.steps.choices().any();
  PlannedSteps planned;
  if (!may_choose || !budget) planned = as_given();
  if (may_choose && (budget || planned.budget > limit)) planned = search_within(limit);
  planned.has_budget = budget > 0;
  planned.program_bytes = request_.program_bytes;
  if (budget) planned.budget = budget;
  planned.limit = planned.search ? limit : planned.budget;
  return planned;
}

PlannedSteps StepPlanner::plan_within(size_t bytes) {
  PlannedSteps planned = search_within(bytes);
  planned.search = compared(*std::move(planned.search), bytes);
  planned.has_budget = true;
  return planned;
}

bool StepPlanner::can_choose_within(size_t bytes) {
  Searches& all = searches();
  return !all.levers.placement && all.by_choice().plan(bytes).fits;
}

size_t StepPlanner::smallest_budget() { return searches().chunks.own().smallest_budget(); }

size_t StepPlanner::keep_all_peak() { return searches().by_choice().keep_all_peak(); }

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
  const SearchedStep& step = searches().step;
  std::vector<PolicyPoint> points;
  for (const SimplePolicy& policy : policies_by_hand(step, rest)) {
    const FoundPlan found = lay_out_plan(step, policy.plan, rest.loss_chunk);
    points.push_back({.name = policy.name,
                      .peak = std::max(found.peak, step.other_peak(found.plan)),
                      .seconds = found.seconds});
  }
  return points;
}

}  // namespace spool
