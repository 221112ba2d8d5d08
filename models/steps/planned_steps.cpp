#include "spool/models/steps/planned_steps.h"

#include "spool/models/steps/step_search.h"

namespace spool {
namespace {

// With what is foretold of the plans.
PlannedSteps foretold(const StepDescription& step, PlannedSteps planned, const Machine& machine) {
  planned.foretold = foretell_step(step, planned.plans, machine, {.at_peak = true});
  planned.plans.host_bytes = planned.foretold.host.peak;
  planned.plans.disk_bytes = planned.foretold.disk.peak;
  planned.budget = planned.foretold.memory.peak;
  return planned;
}

PlannedSteps plan_as_given(const StepDescription& step, const StepRequest& request,
                           const Machine& machine) {
  const Policy policy = request.given_policy();
  PlannedSteps planned{.loss_rows = policy.loss_chunk};
  planned.plans.step = request.plan ? *request.plan : plan_step(step, policy, machine);
  planned.plans.graph = request.graph;
  planned.plans.spill_directory = request.spill_directory;
  planned.plans.layout = lay_out_step(step, planned.plans, machine);
  return foretold(step, std::move(planned), machine);
}

PlannedSteps search_plan(const StepDescription& step, const StepRequest& request,
                         const Machine& machine) {
  const size_t limit = request.budget ? request.budget : request.free;
  PlannedSteps planned{.search = StepSearch(step, request, machine).plan(limit)};
  const FoundPlan& found = planned.search->found;
  planned.loss_rows = found.loss_rows;
  planned.plans = {.step = found.plan,
                   .graph = request.graph,
                   .spill_directory = request.spill_directory,
                   .layout = found.layout};
  return foretold(step, std::move(planned), machine);
}

void check_request(const StepRequest& request) {
  check(!request.policy || !request.plan,
        "steps were given both a policy and a plan; give one of them, or neither and a budget");
}

// `where`: of the peak.
[[noreturn]] void fail_to_fit(const PlannedSteps& planned, const StepRequest& request,
                              const std::string& where) {
  const bool chosen = request.choices().placement;
  fail_memory({.what = chosen ? "the smallest plan of these steps" : "a step by this plan",
               .needed = planned.foretold.memory.peak,
               .available = request.budget ? request.budget : request.free,
               .place = request.budget ? "in the budget" : "on the device",
               .advice = sentence("its peak is in ", where,
                                  chosen ? "; a smaller micro-batch may fit"
                                         : "; without a policy and a plan, one is chosen that fits "
                                           "if there is one"),
               .settings = {"memory"}});
}

std::string place_of_peak(const StepDescription& step, const PlannedSteps& planned,
                          const Machine& machine) {
  if (planned.search) return planned.search->found.binding;
  const StepDescription distinct = with_micro_batches(step, distinct_micro_batches);
  const RehearsedStep rehearsed = rehearse_step(distinct, planned.plans, machine, {.survey = true});
  return description(*rehearsed.survey.peak());
}

}  // namespace

PlannedSteps plan_steps(const StepDescription& step, const StepRequest& request,
                        const Machine& machine) {
  check_request(request);
  const bool may_choose = request.choices().any();
  const size_t limit = request.budget ? request.budget : request.free;
  PlannedSteps planned;
  if (may_choose && request.budget) {
    planned = search_plan(step, request, machine);
  } else {
    planned = plan_as_given(step, request, machine);
    if (may_choose && planned.budget > limit) planned = search_plan(step, request, machine);
  }
  if (planned.budget > limit) {
    fail_to_fit(planned, request, place_of_peak(step, planned, machine));
  }
  if (request.budget) planned.budget = request.budget;
  return planned;
}

}  // namespace spool
