#include "spool/models/steps/exchange/buckets_choice.h"

#include <algorithm>
#include <array>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/machines/machine.h"

namespace spool {
namespace {

constexpr std::array choices{fewest_buckets_in_flight, 3, 4, 8};
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
                     int buckets) {
  plans.step.buckets_in_flight = buckets;
  plans.layout.reset();
  return foretell_step(step, plans, machine).seconds;
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
  std::vector<PlannedSteps> all{plan(choices.front())};
  if (!fits(all.front(), request, machine)) return all.front();
  const auto least = [&](int buckets) {
    return least_seconds(run.step, all.front().plans, machine, buckets);
  };
  const double least_of_all = least(choices.back());
  double fastest = all.front().foretold.seconds;
  for (auto buckets = choices.begin() + 1; buckets != choices.end(); ++buckets) {
    if (fastest <= alike * least_of_all) break;
    const double least_of_these = least(*buckets);
    // A search would find none that is faster than the one before, or nearly as fast as any.
    if (fastest <= alike * least_of_these && least_of_these > alike * least_of_all) continue;
    all.push_back(plan(*buckets));
    if (!fits(all.back(), request, machine)) break;
    fastest = std::min(fastest, all.back().foretold.seconds);
  }
  const auto chosen = std::ranges::find_if(
      all, [&](const PlannedSteps& one) { return one.foretold.seconds <= alike * fastest; });
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (one != chosen) add_search(*chosen, *one);
  }
  return *chosen;
}

}  // namespace spool
