// runs: numbers
// The bound of steps whose optimizer's state may leave the device: it holds for plans with any
// share of the state on the device, with values that are recomputed, in chunks or offloaded.

#include <gtest/gtest.h>

#include "spool/models/steps/step_planner.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/report/simple_policies.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

constexpr TransformerSizes sizes{
    .layers = 4, .channels = 128, .heads = 2, .vocabulary = 2000, .batch = 4, .tokens = 512};
constexpr int shares = 3;

std::vector<Policy> policies() {
  std::vector<Policy> all;
  for (const char* list : {"none", "block"}) {
    for (const Offloading offload : {Offloading::none, Offloading::all}) {
      for (const int64_t rows : {0, 256}) {
        Policy policy{.offload = offload, .loss_chunk = rows, .mlp_chunk = rows};
        set_recompute(policy, list);
        all.push_back(policy);
      }
    }
  }
  return all;
}

// All shares of the state of the plan's step.
std::vector<Plan> with_shares(const SearchedStep& step, const Plan& plan) {
  std::vector<Plan> all{plan};
  Plan streamed = plan;
  streamed.optimizer_state = OptimizerState::streamed;
  const size_t state = lay_out_plan(step, streamed, 0).host_bytes;
  for (size_t i = 0; i < shares; ++i) {
    streamed.state_bytes_on_device = state * i / shares;
    all.push_back(streamed);
  }
  return all;
}

void expect_holds(const Machine& machine, int64_t micro_batches) {
  const StepDescription description = describe(sizes, {.accumulate = micro_batches});
  const SearchedStep step = searched_step(description, machine);
  Search search(step, {.regions = true, .state_share = true, .offload_to = OffloadTarget::host});
  for (const Policy& policy : policies()) {
    for (const Plan& plan : with_shares(step, plan_step(description, policy, machine))) {
      const FoundPlan found = lay_out_plan(step, plan, policy.loss_chunk);
      SCOPED_TRACE(sentence(recompute_list(policy), ", offload ", name(policy.offload), ", ",
                            policy.loss_chunk, " rows, ", plan.state_bytes_on_device,
                            " bytes of state on the device: ", found.peak));
      const SearchResult result = search.plan(found.peak);
      EXPECT_GT(result.lower_bound, 0);
      EXPECT_LE(result.lower_bound, found.seconds * (1 + 1e-9));
      EXPECT_LE(result.lower_bound, result.found.seconds * (1 + 1e-9));
    }
  }
}

TEST(StateShareBound, HoldsForPlansByHand) {
  for (const int64_t micro_batches : {1, 3}) {
    Machine machine = *named_machine("h200");
    machine.to_host_bytes_per_second = machine.from_host_bytes_per_second =
        micro_batches == 1 ? 2e9 : 50e9;
    SCOPED_TRACE(sentence(micro_batches, " micro-batches"));
    expect_holds(machine, micro_batches);
  }
}

}  // namespace
}  // namespace spool::testing
