// Differences of two plans, one line each.

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

TEST(PlanDiff, TellsOfRegionsInChunks) {
  const auto in_chunks = [](NodeId first, NodeId last, int chunks, std::vector<ValueId> leaves) {
    return Region{.first = first, .last = last, .chunks = chunks, .leaves = std::move(leaves)};
  };
  Plan a, b;
  a.regions = {{.first = 0, .last = 3},    in_chunks(4, 6, 2, {9}),   in_chunks(7, 12, 4, {31}),
               in_chunks(13, 15, 8, {33}), {.first = 16, .last = 17}, in_chunks(18, 19, 8, {50}),
               {.first = 20, .last = 21}};
  b.regions = {{.first = 0, .last = 3},       in_chunks(1, 3, 2, {5}),
               in_chunks(7, 12, 8, {31, 32}), in_chunks(13, 15, 8, {33, 35}),
               in_chunks(16, 17, 2, {40}),    in_chunks(18, 19, 8, {50}),
               {.first = 20, .last = 21},     in_chunks(20, 21, 3, {60})};
  EXPECT_EQ(diff(a, b), R"(nodes 1 to 3: a region of 2 chunks
nodes 4 to 6: no region any more
nodes 7 to 12: a region of 4 chunks -> a region of 8 chunks
nodes 13 to 15: leaves 33 -> leaves 33, 35
nodes 16 to 17: a region -> a region of 2 chunks
nodes 20 to 21: a region -> a region and a region of 3 chunks
)");
  EXPECT_EQ(diff(b, b), "");
  EXPECT_EQ(diff({}, {.regions = {in_chunks(2, 2, 5, {4})}}), "node 2: a region of 5 chunks\n");
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
