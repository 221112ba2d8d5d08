// runs: threads
// Rare uses of regions in chunks: a program that is taken, targets of another rank, a failure after
// which another op ends the region, leaves that are computed once, chunks in chunks.

#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

class OddChunks : public ::testing::Test {
 protected:
  std::unique_ptr<Stream> stream = open_stream({}, chunk_memory, 2);
  Net net{*stream, {.B = 4, .T = 5}};
};

TEST_F(OddChunks, AnInnerValueHasNoTensorWhenTheProgramIsTaken) {
  Tape tape(*stream, net.options(plan_of(chunk_case("mlp"), 2)));
  const Var x = tape.input(net.x, true);
  tape.input(net.w, true);
  const Var inner = layer_norm(x, net.norm_weight, net.norm_bias);
  expect_error(ErrorKind::invalid, {"take_program", "has not ended"}, [&] { tape.take_program(); });
  const Var h = gelu(linear(inner, net.fc, net.fc_bias));
  add(x, dropout(linear(h, net.proj, net.proj_bias), 0.25f));
  tape.take_program();
  expect_error(ErrorKind::invalid, {"its tensor was asked for", "not one of its leaves"},
               [&] { inner.tensor(); });
}

// The numbers of dropout are those of its own tensor's rows, whatever else the region reads.
TEST_F(OddChunks, DropoutDrawsTheSameBesideTargetsOfAnotherRank) {
  for (const bool flat : {false, true}) {
    for (const int64_t first_row : {0, 8}) {
      const auto losses = [&](const Plan& plan) {
        TapeOptions options = net.options(plan);
        options.first_row = first_row;
        Tape tape(*stream, options);
        const Var targets = tape.input(flat ? net.targets.reshape({20}) : net.targets);
        const Var h = dropout(linear(tape.input(net.x, true), net.square), 0.5f);
        return values(
            linear_cross_entropy(h, net.head, targets, {.reduction = Reduction::none}).tensor());
      };
      // Values: targets, x, square, linear's, dropout's, head, losses.
      const Plan in_chunks{.regions = {{.first = 0, .last = 2, .chunks = 4, .leaves = {6}}}};
      EXPECT_LT(difference(losses(in_chunks), losses({})), 1e-5) << flat << ' ' << first_row;
    }
  }
}

struct FailingHooks final : SavedTensorHooks {
  int until_failure = 0;
  std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo&) override {
    if (until_failure-- == 0) throw std::runtime_error("this hook fails");
    return keep(t);
  }
};

// Whether gelu(w) carries the region's index depends on the op that ends the region.
TEST_F(OddChunks, AnotherOpMayEndTheRegionAfterAFailure) {
  const Tensor dy = normal(net.w.shape(), DType::f32, *stream, 9);
  const auto gradient = [&](int failing_pack) {
    // Values: x, w, gelu of x, gelu of w, and what ends the region.
    Tape tape(*stream,
              net.options({.regions = {{.first = 1, .last = 2, .chunks = 2, .leaves = {4}}}}));
    const Var x = tape.input(net.x, true), w = tape.input(net.w, true);
    const Var h = gelu(x), g = gelu(w);
    if (failing_pack >= 0) {
      FailingHooks hooks;
      hooks.until_failure = failing_pack;
      const Tape::HooksScope scope(tape, hooks);
      EXPECT_THROW(linear(h, g), std::runtime_error);
    }
    tape.backward({Root{gelu(g), dy}});
    return values(tape.grad(w));
  };
  const std::vector<double> expected = gradient(-1);
  EXPECT_EQ(gradient(0), expected);
  EXPECT_EQ(gradient(1), expected);
}

TEST_F(OddChunks, ALeafThatIsComputedOnceIsOffloadedIfThePlanSaysSo) {
  const ChunkCase& c = chunk_case("a_leaf_without_the_index");
  const Program program = program_of(c);
  Plan plan = plan_of(c, 2);
  const ValueId leaf = program.nodes[0].outputs[0];
  ASSERT_EQ(plan.regions[0].leaves.front(), leaf);
  plan.placement.assign(program.values.size(), Placement::keep);
  plan.placement[leaf] = Placement::offload;
  HostLink link(*stream, chunk_memory);
  Offloader offloader(link);
  CaseRun run(c, *stream, {.plan = plan, .offloader = &offloader});
  run.forward();
  EXPECT_TRUE(run.tape().is_packed(leaf));
  run.backward();
}

// A region in chunks whose leaves are all computed once has nothing to run in chunks.
TEST_F(OddChunks, ARegionMayHaveOnlyLeavesThatAreComputedOnce) {
  const auto results = [&](const Plan& plan) {
    Tape tape(*stream, net.options(plan));
    const Var x = tape.input(net.x, true), w = tape.input(net.w, true);
    const Var g = gelu(w);  // value 2
    gelu(x);                // not read
    tape.backward({Root{g, net.w}});
    return values(tape.grad(w));
  };
  EXPECT_EQ(results({.regions = {{.first = 0, .last = 1, .chunks = 2, .leaves = {2}}}}),
            results({}));
}

// An op in chunks of rows has chunks of as many rows within a region in chunks.
TEST_F(OddChunks, ChunksOfAnOpKeepTheirRowsInChunksOfARegion) {
  const auto products = [&](int of_region) {
    MetaStream meta(Machine{});
    Net on_meta(meta, {.B = 4, .T = 5});
    Plan plan{.chunks = std::vector{4}};
    if (of_region > 1) {
      plan.regions = {{.first = 0, .last = 0, .chunks = of_region, .leaves = {3}}};
    }
    Tape tape(meta, {.plan = plan, .recording = false});
    const Var x = tape.input(on_meta.x);
    const uint64_t before = meta.launches();
    linear_cross_entropy(x, on_meta.head, tape.input(on_meta.targets),
                         {.reduction = Reduction::none});
    return meta.launches() - before;
  };
  EXPECT_EQ(products(2), products(1));
}

}  // namespace
}  // namespace spool::testing
