// runs: threads
// Leaves: what a region in chunks computes and others read.

#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

// An mlp in three chunks: x 0, norm 1 to 5, fc 6 to 8, gelu 9, proj 10 to 12, dropout 13, add 14.
class LeavesOfChunks : public ::testing::Test {
 protected:
  CpuStream stream{chunk_memory, 2};
  Net net{stream};

  TapeOptions with_leaves(std::vector<ValueId> leaves) const {
    return net.options({.regions = {{0, 5, 3, std::move(leaves)}}});
  }
  // The value that the gelu of an mlp computes, and the mlp's result.
  std::pair<Var, Var> mlp(Tape& tape) {
    const Var x = tape.input(net.x, /*needs_grad=*/true);
    const Var inner =
        gelu(linear(layer_norm(x, net.norm_weight, net.norm_bias), net.fc, net.fc_bias));
    return {inner, add(x, dropout(linear(inner, net.proj, net.proj_bias), 0.25f))};
  }
  static Root root(const Var& y) {
    return {y, normal(y.shape(), DType::f32, y.tape().stream(), 9)};
  }
};

TEST_F(LeavesOfChunks, InnerValuesCannotBeReadAndTheErrorNamesOpAndRegion) {
  Tape tape(stream, with_leaves({14}));
  const auto [inner, y] = mlp(tape);
  const uint64_t launches = stream.launches();
  const size_t live = stream.memory().live;
  EXPECT_TRUE(y.is_readable());
  EXPECT_FALSE(inner.is_readable());
  EXPECT_EQ(inner.shape(), Shape({2, 5, 32}));
  const std::initializer_list<std::string_view> words{
      "value 9",        "f32 (2, 5, 32)", "computed by gelu (node 2)", "region of nodes 0 to 5",
      "runs in chunks", "leaves"};
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(contains(error_of([&, v = inner] { gelu(v); }), "gelu (node 6)"));
    expect_error(ErrorKind::invalid, words, [&, v = inner] { gelu(v); });
    EXPECT_EQ(tape.nodes().size(), 6u);
  }
  EXPECT_EQ(stream.launches(), launches);
  EXPECT_EQ(stream.memory().live, live);
  tape.backward({root(y)});
}

TEST_F(LeavesOfChunks, InnerValuesHaveNoTensor) {
  Tape tape(stream, with_leaves({14}));
  const auto [inner, y] = mlp(tape);
  expect_error(ErrorKind::invalid,
               {"its tensor was asked for", "value 9", "gelu (node 2)", "nodes 0 to 5", "leaves"},
               [&, v = inner] { v.tensor(); });
  EXPECT_EQ(y.tensor().shape(), Shape({2, 5, 8}));
}

TEST_F(LeavesOfChunks, InnerValuesAreNoRoots) {
  Tape tape(stream, with_leaves({14}));
  const auto [inner, y] = mlp(tape);
  expect_error(ErrorKind::invalid,
               {"backward: a root", "gelu (node 2)", "runs in chunks", "leaves"},
               [&, v = inner] { tape.backward({root(v)}); });
}

TEST_F(LeavesOfChunks, OfAWholeMlpAreItsResultAlone) {
  const Program program = program_of(chunk_case("mlp"));
  const Region region = region_of(program, 0, 5, 3);
  EXPECT_EQ(region.leaves, std::vector{program.nodes[5].outputs[0]});
}

TEST_F(LeavesOfChunks, HaveNoTensorUntilTheRegionHasEnded) {
  Tape tape(stream, with_leaves({3, 14}));
  const Var x = tape.input(net.x), y = layer_norm(x, net.norm_weight, net.norm_bias);
  EXPECT_FALSE(y.is_readable());
  expect_error(ErrorKind::invalid,
               {"its tensor was asked for", "value 3", "layer_norm (node 0)", "not ended yet"},
               [&] { y.tensor(); });
  const Var inner = gelu(linear(y, net.fc, net.fc_bias));
  add(x, dropout(linear(inner, net.proj, net.proj_bias), 0.25f));
  EXPECT_TRUE(y.is_readable());
  EXPECT_FALSE(inner.is_readable());
  Tape whole(stream);
  EXPECT_EQ(values(y.tensor()),
            values(layer_norm(whole.input(net.x), net.norm_weight, net.norm_bias).tensor()));
}

TEST_F(LeavesOfChunks, ThatAreNotComputedThereAreRefused) {
  for (const ValueId elsewhere : {0, 6, 15, 99}) {
    std::vector<ValueId> leaves{14, elsewhere};
    std::ranges::sort(leaves);
    Tape tape(stream, with_leaves(leaves));
    const uint64_t launches = stream.launches();
    const size_t live = stream.memory().live;
    expect_error(
        ErrorKind::invalid,
        {sentence("value ", elsewhere), "listed as a leaf", "nodes 0 to 5", "not computed in it"},
        [&] { mlp(tape); });
    EXPECT_EQ(stream.launches(), launches);
    EXPECT_EQ(stream.memory().live, live);
    EXPECT_EQ(tape.nodes().size(), 5u) << "those before the region's last";
  }
}

TEST_F(LeavesOfChunks, ThatAreNeverReadChangeNothing) {
  const auto results = [&](const std::vector<ValueId>& leaves) {
    std::vector<std::vector<double>> all;
    Tape tape(stream, with_leaves(leaves));
    const Var y = mlp(tape).second;
    all.push_back(values(y.tensor()));
    tape.backward({root(y)});
    for (const Tensor& t : net.take_gradients()) {
      all.push_back(t ? values(t) : std::vector<double>());
    }
    return all;
  };
  const auto expected = results({14});
  EXPECT_EQ(results({9, 14}), expected);
  EXPECT_EQ(results({3, 4, 5, 8, 9, 12, 13, 14}), expected);
}

TEST_F(LeavesOfChunks, OfARegionThatIsNeverReadAreNotDifferentiated) {
  Tape tape(stream, with_leaves({14}));
  mlp(tape);
  const Var y = linear(tape.input(net.x), net.square);
  const uint64_t launches = stream.launches();
  tape.backward({root(y)});
  EXPECT_LE(stream.launches() - launches, 2u);  // the root's numbers come from the host
  EXPECT_FALSE(bool(net.fc.grad));
  EXPECT_TRUE(bool(net.square.grad));
}

TEST_F(LeavesOfChunks, KeepTheirValuesAndReadersWhenTheRegionIsGone) {
  const size_t live = stream.memory().live;
  Tensor kept;
  {
    Tape tape(stream, with_leaves({14}));
    kept = mlp(tape).second.tensor();
  }
  EXPECT_EQ(stream.memory().live - live, Arena::granule);
  EXPECT_EQ(values(kept).size(), 80u);
}

}  // namespace
}  // namespace spool::testing
