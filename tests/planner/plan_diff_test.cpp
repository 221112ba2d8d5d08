// Differences of two plans, a line each.

#include "spool/planner/report/plan_diff.h"

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/planner/plan_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(PlanDiff, HasALineForEachChange) {
  Plan a = small_plan(), b = a;
  b.placement = {Placement::keep, Placement::keep, Placement::keep, Placement::offload};
  b.offloads = {{.value = 3, .fetch = 1}};
  b.chunks = {};
  b.regions = {{.first = 0, .last = 2}, {.first = 2, .last = 2}};
  b.optimizer_state = OptimizerState::cpu;
  b.fingerprints = {1, 2};
  EXPECT_EQ(diff(a, b), R"(tape: one of 3 nodes -> one of 2 nodes, which differ from node 1 on
value 2: recompute -> keep
value 3: offload, 512 rows, to disk, out before node 2 -> offload, back before node 1
values 4 to 5: recompute -> keep
node 2: 8 chunks -> 1 chunk
node 1: no region any more
node 2: a region
optimizer state: streamed -> cpu
)");
  EXPECT_EQ(diff({.fingerprints = {7}}, {}), "tape: one of 1 nodes -> any\n");
  EXPECT_EQ(diff({}, {.placement = {Placement::keep}, .chunks = {1, 0}}), "");
}

TEST(PlanDiff, NamesValuesByTheOpsThatMakeThem) {
  CpuStream stream(size_t{1} << 20, 1);
  Parameter weight{.name = "fc", .data = Tensor({Shape{4, 4}, DType::f32}, stream)};
  Tape tape(stream);
  const Tensor x = normal({2, 4}, DType::f32, stream, 1);
  gelu(gelu(linear(tape.input(x), weight)));
  using enum Placement;
  const Plan b = {.placement = {offload, offload, recompute, recompute, recompute, recompute},
                  .regions = {{.first = 1, .last = 2}}};
  EXPECT_EQ(diff({}, b, tape.program()),
            R"(values 0 to 1 (an input to parameter fc): keep -> offload
values 2 to 5: keep -> recompute
nodes 1 to 2 (gelu to gelu): a region
)");
  EXPECT_EQ(diff({}, {.placement = {keep, keep, keep, recompute}}, tape.program()),
            "value 3 (gelu of node 1): keep -> recompute\n");
}

}  // namespace
}  // namespace spool::testing
