#include "spool/models/steps/exchange/buckets_choice.h"

#include <algorithm>
#include <array>
#include <optional>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/machines/machine.h"

namespace spool {
namespace {

constexpr std::array choices{fewest_buckets_in_flight, 3, 4, most_buckets_in_flight};
constexpr double alike = 1.005;  // in seconds

// The bytes of the device that the steps must fit into.
size_t room_of(const RunRequest& request) {
  const StepRequest& steps = request.steps;
  return std::min(steps.budget ? steps.budget : steps.free, request.capacity);
}

bool fits(const PlannedSteps& planned, const RunRequest& request, const Machine& machine) {
  const Report& foretold = planned.foretold;
  const bool shared = std::holds_alternative<CpuArchitecture>(machine.architecture);
  return foretold.memory.peak + (shared ? foretold.host.peak : 0) <= room_of(request);
}

// As if so many buckets took no memory: no plan is faster by them.
double least_seconds(const StepDescription& step, StepPlans plans, const Machine& machine,
                     int buckets, KeptModels& kept) {
  plans.step.buckets_in_flight = buckets;
  plans.layout.reset();
  return foretell_step(step, plans, machine, {}, &kept).seconds;
}

// The fewest that these plans are nearly fastest with.
int fewest_for(const StepDescription& step, const StepPlans& plans, const Machine& machine) {
  KeptModels kept;
  std::array<double, choices.size()> seconds{};
  std::ranges::transform(choices, seconds.begin(), [&](int buckets) {
    return least_seconds(step, plans, machine, buckets, kept);
  });
  const double most = alike * std::ranges::min(seconds);
  const auto fewest = std::ranges::find_if(seconds, [&](double s) { return s <= most; });
  return choices[static_cast<size_t>(fewest - seconds.begin())];
}

void add_search(PlannedSteps& to, const PlannedSteps& other) {
  if (!to.search || !other.search) return;
  to.search->plan_seconds += other.search->plan_seconds;
  to.search->rehearsals += other.search->rehearsals;
}

}  // namespace

PlannedSteps plan_buckets(const RunSteps& run, const RunRequest& request, const Machine& machine,
                          const std::function<PlannedSteps(int buckets)>& plan) {
  if (run.step.config.replicas() < 2) return plan(request.steps.buckets_in_flight);
  if (request.steps.plan) return plan(buckets_in_flight(*request.steps.plan));
  if (const int given = request.steps.buckets_in_flight) return plan(given);
  const Machine nominal = nominal_machine(machine);
  const Policy gathers_again{.gathers = run.step.config.zero == 3};
  int buckets =
      fewest_for(run.step, {.step = plan_step(run.step, gathers_again, nominal)}, nominal);
  PlannedSteps planned = plan(buckets);
  std::optional<int> too_many;
  while (buckets > choices.front() && !fits(planned, request, machine)) {
    too_many = buckets;
    buckets = *std::prev(std::ranges::find(choices, buckets));
    PlannedSteps fewer = plan(buckets);
    add_search(fewer, planned);
    planned = std::move(fewer);
  }
  const int better = fewest_for(run.step, planned.plans, machine);
  if (better == buckets || !fits(planned, request, machine)) return planned;
  if (too_many && better >= *too_many) return planned;
  PlannedSteps other = plan(better);
  const double least = std::min(planned.foretold.seconds, other.foretold.seconds);
  const bool is_other_best = (better < buckets ? other : planned).foretold.seconds <= alike * least
                                 ? better < buckets
                                 : better > buckets;
  const bool takes_other = is_other_best && fits(other, request, machine);
  add_search(takes_other ? other : planned, takes_other ? planned : other);
  return takes_other ? other : planned;
}

}  // namespace spool
