#include "spool/models/steps/step_planner.h"

#include <algorithm>
#include <map>

#include "spool/models/steps/chunks/chunk_choice.h"
#include "spool/models/steps/chunks/parts_choice.h"
#include "spool/models/steps/exchange/buckets_choice.h"
#include "spool/models/steps/refusal.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/report/simple_policies.h"
#include "spool/planner/search/measured_options.h"

namespace spool {

namespace {

// The parts that the request sets: of its plan, or of a run that resumes.
std::vector<NodesInChunks> given_parts(const StepRequest& request, const PartsChoice& choice) {
  return request.plan ? choice.of(*request.plan) : parts_in(request.given_policy().in_chunks);
}

bool is_free(const StepRequest& request, const PartsChoice& choice) {
  return bool(choice) && !request.plan && given_parts(request, choice).empty();
}

}  // namespace

// The searches of a run, each begun when it is first asked.  Chunks are chosen with the first
// number of buckets in flight that is tried, or fewer.
struct StepPlanner::Searches {
  const RunSteps& run;
  const StepRequest& request;
  const PartsChoice& parts;
  int buckets_of_chunks;
  bool chooses_parts;
  SearchedStep bare;                       // in the parts of each plan
  std::vector<NodesInChunks> given_parts;  // while they are chosen, the smallest
  SearchedStep step;                       // in these
  Levers levers;                           // of the request
  bool chooses_chunks;
  bool is_nominal;       // the clock
  SearchedStep nominal;  // bare, by the nominal clock
  ChunkChoice chunks, chunks_in_faster_parts;
  std::unique_ptr<Search> asked = {}, unasked = {};
  std::map<std::pair<int64_t, std::vector<NodesInChunks>>, std::unique_ptr<Search>> in_chunks = {};

  Searches(const RunSteps& r, const StepRequest& asked_for, const Machine& machine,
           const PartsChoice& of_parts)
      : run(r),
        request(asked_for),
        parts(of_parts),
        buckets_of_chunks(request.buckets_in_flight),
        chooses_parts(is_free(asked_for, of_parts)),
        bare(searched_step(r.step, machine, other_peak_of(r), request.buckets_in_flight)),
        given_parts(chooses_parts ? parts.smallest() : spool::given_parts(asked_for, parts)),
        step(with_parts(bare, given_parts)),
        levers(levers_of(r.step, asked_for, machine)),
        chooses_chunks(!levers.loss_rows || levers.regions),
        is_nominal(has_nominal_clock(machine)),
        nominal(
            searched_step(r.step, nominal_machine(machine), other_peak_of(r), buckets_of_chunks)),
        chunks(machine, chooses_chunks,
               [this](const Machine& other) { return search_on(other, given_parts); }),
        chunks_in_faster_parts(machine, chooses_chunks, [this](const Machine& other) {
          return search_on(other, parts.faster());
        }) {}

  // A machine of the same kind, which may have other threads.
  std::unique_ptr<Search> search_on(const Machine& machine,
                                    const std::vector<NodesInChunks>& in_parts) const {
    const bool has_own_peak = !run.smaller || threads_of(machine) == threads_of(step.machine);
    OtherPeak other_peak = has_own_peak ? OtherPeak(step.other_peak)
                                        : other_peak_of(run.smaller(run.batch, run.seq, machine));
    const SearchedStep other =
        searched_step(run.step, machine, std::move(other_peak), buckets_of_chunks);
    return std::make_unique<Search>(with_parts(other, in_parts),
                                    levers_of(run.step, request, machine));
  }

  // Whether the choice of chunks for these threads is a search by the run's own clock.
  bool is_own(int threads) const { return own_is_nominal() && threads == threads_of(step.machine); }
  bool own_is_nominal() const {
    return is_nominal && request.buckets_in_flight == buckets_of_chunks;
  }

  // When the request has another number of buckets in flight.
  void begin_again() {
    bare = searched_step(run.step, bare.machine, bare.other_peak, request.buckets_in_flight);
    step = with_parts(bare, given_parts);
    asked.reset();
    unasked.reset();
    in_chunks.clear();
  }

  // By the run's own clock: chooses what the request leaves open.
  Search& by_request() {
    if (own_is_nominal()) return chunks.own();
    if (!asked) asked = std::make_unique<Search>(step, levers);
    return *asked;
  }

  // By the run's own clock: what is recomputed and offloaded is chosen, too.
  Search& by_choice() {
    if (levers.placement) return by_request();
    if (!unasked) {
      unasked = std::make_unique<Search>(step, free_levers(run.step, request, levers));
    }
    return *unasked;
  }

  // By the run's own clock, with the chunks of a plan.
  Search& with_chunks(const FoundPlan& found) {
    if (!chooses_chunks && !chooses_parts) return by_request();
    std::vector<NodesInChunks> nodes = nodes_in_chunks(found.plan);
    std::ranges::copy(parts_of(found.plan), std::back_inserter(nodes));
    auto& search = in_chunks[{found.loss_rows, nodes}];
    if (!search) {
      search = std::make_unique<Search>(with_parts(bare, nodes), with_chunks_of(found, levers));
    }
    return *search;
  }

  // A plan that another clock, or other threads or buckets in flight, found, on the run's machine.
  FoundPlan on_own_machine(const FoundPlan& found, int threads) const {
    FoundPlan own = found;
    if (threads != threads_of(step.machine) || request.buckets_in_flight != buckets_of_chunks) {
      own = lay_out_plan(bare, found.plan, found.loss_rows);
      own.peak = std::max(own.peak, step.other_peak(found.plan));
      own.binding = found.binding;
    }
    own.seconds = seconds_of(found.plan);
    return own;
  }

  double seconds_of(const Plan& plan) const {
    return step_seconds(bare.rehearse(plan, std::nullopt, {.survey = true}), step.micro_batches);
  }

  std::vector<NodesInChunks> parts_of(const Plan& plan) const {
    return chooses_parts ? parts.of(plan) : given_parts;
  }

  // By the nominal clock for these threads: chunks, and then parts.  Beside the smallest parts,
  // which leave most memory to values, a search for faster ones may pay.
  SearchResult chosen(int threads, size_t limit) {
    SearchResult result = chunks.plan(threads, limit);
    result.found.plan = spool::with_parts(std::move(result.found.plan), given_parts);
    if (!chooses_parts || !result.fits) return result;
    result.found = parts.within(nominal, std::move(result.found), limit);
    if (parts_of(result.found.plan) == parts.fastest()) return result;
    SearchResult other = chunks_in_faster_parts.plan(threads, limit);
    other.rehearsals += result.rehearsals;
    if (!other.fits) return result;
    other.found.plan = spool::with_parts(std::move(other.found.plan), parts.faster());
    FoundPlan raised = parts.within(nominal, other.found, limit);
    if (raised.seconds < other.found.seconds) other.found = std::move(raised);
    return other.found.seconds < result.found.seconds ? other : result;
  }

  // The seconds of a step that the parts of a search may be slower than others.
  double slowed_by_parts() const {
    if (!chooses_parts) return 0;
    const auto seconds = [&](const auto& nodes) {
      return seconds_of(spool::with_parts(Plan{}, nodes));
    };
    return std::max(seconds(given_parts) - seconds(parts.fastest()), 0.0);
  }

  // The nominal clock chooses chunks and parts; what else is chosen is by the run's own.
  SearchResult found(int threads, size_t limit) {
    if (chooses_chunks || chooses_parts) return within(chosen(threads, limit), threads, limit);
    SearchResult result = by_request().plan(limit);
    result.found.plan = spool::with_parts(std::move(result.found.plan), given_parts);
    return result;
  }

  // The fastest plan within the limit by the run's own clock, with the chunks of this one.
  SearchResult within(const SearchResult& chosen, int threads, size_t limit) {
    if (!chosen.fits || is_own(threads)) return chosen;
    SearchResult own = with_chunks(chosen.found).plan(limit);
    own.rehearsals += chosen.rehearsals;
    own.found.plan = spool::with_parts(std::move(own.found.plan), parts_of(chosen.found.plan));
    if (own.fits && own.found.seconds <= seconds_of(chosen.found.plan)) return own;
    const FoundPlan same = on_own_machine(chosen.found, threads);
    if (same.peak > limit) return own;
    own.fits = true;
    own.found = same;
    return own;
  }
};

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
  if (fixed.optimizer_state != OptimizerState::device || offloads(fixed)) result.lower_bound = 0;
  return result;
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
  result = compared(std::move(result), limit);
  // Measured kernels of chunks that were not rehearsed may be faster than the bound assumes.
  if (machine_.kernels) result.lower_bound = std::min(result.lower_bound, result.found.seconds);
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
  PlannedSteps planned = plan_buckets(run_, request_, machine_, [this](int buckets) {
    exchange_at_a_time(buckets);
    return plan_all_else();
  });
  exchange_at_a_time(planned.plans.step.buckets_in_flight);
  planned.refusal = refuse(planned, run_, request_, machine_);
  return planned;
}

PlannedSteps StepPlanner::plan_all_else() {
  const size_t budget = request_.steps.budget, limit = budget ? budget : request_.steps.free;
  const bool may_choose = request_.steps.choices().any();
  PlannedSteps planned;
  if (!may_choose || !budget) planned = as_given();
  if (may_choose && (budget || planned.budget > limit)) {
    planned = search_within(limit);
    const double start = host_clock();
    if (request_.compares) planned.slowed_by_chunks = slowed_by_chunks(planned, limit);
    planned.search->plan_seconds += host_clock() - start;
  } else if (request_.compares) {
    const double start = host_clock();
    planned.search = compared({}, limit);
    planned.search->plan_seconds = host_clock() - start;
  }
  planned.has_budget = budget > 0;
  planned.program_bytes = request_.program_bytes;
  if (budget) planned.budget = budget;
  planned.limit = planned.search ? limit : planned.budget;
  return planned;
}

PlannedSteps StepPlanner::plan_within(size_t bytes) {
  PlannedSteps planned = search_within(bytes);
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
