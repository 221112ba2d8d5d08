#include "spool/models/steps/planned_steps.h"

#include "spool/models/steps/step_planner.h"

namespace spool {

PlannedSteps plan_steps(const StepDescription& step, const StepRequest& request,
                        const Machine& machine) {
  check(!request.policy || !request.plan,
        "steps were given both a policy and a plan; give one of them, or neither and a budget");
  const RunRequest steps_alone{.steps = request,
                               .capacity = request.budget ? MetaStream::unlimited : request.free};
  PlannedSteps planned = StepPlanner({.step = with_neighbours(step)}, steps_alone, machine).plan();
  if (planned.refusal) throw Error(*planned.refusal);
  return planned;
}

}  // namespace spool
