// runs: threads
// Saved tensors that backward recomputes, by placement, region and checkpoint.

#include "spool/autograd/ops.h"
#include "tests/autograd/saved_tensors_testing.h"

namespace spool::testing {
namespace {

class RecomputedTensors : public ChainTest {};

TEST_F(RecomputedTensors, RecomputesOnceAndOnlyWhatIsNeeded) {
  const Bits expected = gradients_of_gelu_chain({});
  Tape tape(stream);
  Var h = tape.input(x);
  h = checkpoint(tape, [&] { return gelu_chain(h); });
  const uint64_t before = stream.launches();
  tape.backward({Root{h, dy}});
  // All of 7 linears and 7 gelus are recomputed but the last gelu.  Backward launches 2 kernels for
  // each linear but the first, which has no dx, and 1 for each gelu.
  EXPECT_EQ(stream.launches() - before, 13u + 13u + 7u);
  EXPECT_EQ(tape.nodes().back().runs, 1);
  for (size_t i = 0; i + 1 < tape.nodes().size(); ++i) EXPECT_EQ(tape.nodes()[i].runs, 2) << i;
  EXPECT_EQ(take_gradients(), expected);
}

TEST_F(RecomputedTensors, ARecomputedOutputOfARegionRunsItsOpsTwice) {
  Tape survey(stream);
  gelu_chain(survey.input(x));
  Plan plan{.placement = std::vector(survey.values().size(), Placement::keep),
            .regions = {{0, 5}, {6, 13}}};
  plan.placement[survey.nodes()[5].outputs[0]] = Placement::recompute;
  Tape tape(stream, options(plan));
  tape.backward({Root{gelu_chain(tape.input(x)), dy}});
  const int expected[] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1};
  for (size_t i = 0; i < 14; ++i) EXPECT_EQ(tape.nodes()[i].runs, expected[i]) << i;
  const Bits found = take_gradients();
  EXPECT_EQ(found, gradients_of_gelu_chain({}));
}

TEST_F(RecomputedTensors, AnOpInNestedCheckpointsRunsAtMostDepthPlusOneTimes) {
  const Bits expected = gradients_of_gelu_chain({});
  Tape tape(stream);
  size_t live_inside = 0;
  const auto step = [&](size_t i, const Var& h) { return gelu(linear(h, weights[i])); };
  const Var first = tape.input(x);
  const size_t before = stream.memory().live;
  Var h = checkpoint(tape, [&] {
    Var a = step(0, first);
    a = checkpoint(tape, [&] {
      Var b = step(2, step(1, a));
      b = checkpoint(tape, [&] { return step(4, step(3, b)); });
      return step(5, b);
    });
    live_inside = stream.memory().live;
    return step(6, a);
  });
  EXPECT_EQ(stream.memory().live - before, 512u) << "only its output is live";
  tape.backward({Root{h, dy}});
  const auto runs = [&](size_t weight) { return tape.nodes()[2 * weight].runs; };
  for (const size_t depth_1 : {0u, 6u}) EXPECT_EQ(runs(depth_1), 2);
  for (const size_t depth_2 : {1u, 2u, 5u}) EXPECT_EQ(runs(depth_2), 3);
  for (const size_t depth_3 : {3u, 4u}) EXPECT_EQ(runs(depth_3), 4);
  EXPECT_EQ(take_gradients(), expected);
}

TEST_F(RecomputedTensors, RecomputedDropoutHasItsMaskAndLeavesTheRandomStateAlone) {
  const std::vector<int32_t> state{1, 2, 3, 4};
  const Tensor random = make_tensor<int32_t>({4}, state, stream);
  const auto gradients = [&](const Plan& plan) {
    Tape tape(stream, {.plan = plan, .random = random});
    Var h = tape.input(x);
    for (Parameter& w : weights) h = gelu(dropout(linear(h, w), 0.5f));
    tape.backward({Root{h, dy}});
    return take_gradients();
  };
  EXPECT_EQ(gradients({.regions = {{0, 20}}}), gradients({}));
  EXPECT_EQ(gradients({.placement = std::vector(64, Placement::recompute)}), gradients({}));
  EXPECT_EQ(read<int32_t>(random), state);
}

TEST_F(RecomputedTensors, RefusesARegionAroundAnOpThatCannotBeRecomputed) {
  Tape tape(stream, {.plan = {.regions = {{0, 1}}}, .backward_follows = true});
  const std::vector<int32_t> ids{0, 1, 2, 3};
  const Var targets = tape.input(make_tensor<int32_t>({4}, ids, stream));
  const Var h = linear(tape.input(x), weights[0]);
  const size_t live = stream.memory().live;
  expect_error(ErrorKind::invalid, {"linear_cross_entropy", "cannot be recomputed"},
               [&] { linear_cross_entropy(h, weights[1], targets, {}); });
  EXPECT_EQ(stream.memory().live, live);
  expect_error(ErrorKind::invalid, {"nodes 0 to 1", "end of the tape"}, [&] {
    tape.backward({Root{h, dy}});
  });
}

TEST_F(RecomputedTensors, RefusesRegionsThatOverlapOrAreOutOfOrder) {
  const auto make = [&](std::vector<Region> regions) {
    Tape(stream, {.plan = {.regions = std::move(regions)}});
  };
  expect_error(ErrorKind::invalid, {"nodes 2 to 5", "nodes 0 to 3", "nest"}, [&] {
    make({{0, 3}, {2, 5}});
  });
  expect_error(ErrorKind::invalid, {"regions", "4 to 2"}, [&] { make({{4, 2}}); });
  expect_error(ErrorKind::invalid, {"regions", "node 0", "node 4"}, [&] {
    make({{4, 5}, {0, 1}});
  });
  make({{0, 9}, {0, 3}, {4, 9}, {5, 5}, {12, 13}});
}

}  // namespace
}  // namespace spool::testing
