#include "spool/models/steps/planned_steps.h"

#include "spool/models/steps/step_planner.h"

namespace spool {

StepChunks chunks_of(const Policy& policy) {
  return {.loss_rows = policy.loss_chunk, .mlp_rows = policy.mlp_chunk, .nodes = policy.in_chunks};
}

Policy with_chunks(Policy policy, const StepChunks& chunks) {
  policy.loss_chunk = chunks.loss_rows;
  policy.mlp_chunk = chunks.mlp_rows;
  policy.in_chunks = chunks.nodes;
  return policy;
}

PlannedSteps plan_steps(const StepDescription& step, const StepRequest& request,
                        const Machine& machine) {
  check(!request.policy || !request.plan,
        "steps were given both a policy and a plan; give one of them, or neither and a budget");
  const RunRequest steps_alone{.steps = request,
                               .capacity = request.budget ? MetaStream::unlimited : request.free};
  PlannedSteps planned = StepPlanner({.step = step}, steps_alone, machine).plan();
  if (planned.refusal) throw Error(*planned.refusal);
  return planned;
}

}  // namespace spool
