// runs: threads
// Regions that cannot run in chunks: a sentence, before any of their ops runs, and the tape is as
// before the op.

#include "spool/kernels/elementwise.h"
#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

// x as it is, for a reader that needs all of its rows.
struct WholeOp final : Op {
  const char* name() const override { return "whole"; }
  const char* indices() const override { return "NC->NC"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(Add{.out = y, .a = x});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override { b.pass(0); }
};

class RefusedChunks : public ::testing::Test {
 protected:
  CpuStream stream{chunk_memory, 2};
  Net net{stream}, one_row{stream, {.B = 1, .T = 1}};

  // Expects that the body is refused at this node, of a region that begins at the first.
  void expect_refused(const TapeOptions& how, NodeId at, const std::function<void(Tape&)>& body,
                      std::initializer_list<std::string_view> words, int line = __builtin_LINE()) {
    Tape tape(stream, how);
    const uint64_t launches = stream.launches();
    const size_t live = stream.memory().live;
    for (int again = 0; again < 1; ++again) {
      expect_error(
          ErrorKind::invalid, words, [&] { body(tape); }, __FILE__, line);
      EXPECT_EQ(stream.launches(), launches) << line;
      EXPECT_EQ(stream.memory().live, live) << line;
      EXPECT_EQ(tape.nodes().next_id(), at) << line;
    }
  }
  TapeOptions in_chunks(Region region) const { return net.options({.regions = {region}}); }
};

TEST_F(RefusedChunks, OfAnExtentOfOne) {
  expect_refused(in_chunks({0, 5, 2, {14}}), 5,
                 [&](Tape& t) { one_row.mlp(t.input(one_row.x, true)); },
                 {"nodes 0 to 5 cannot run in chunks", "extent of 1"});
}

TEST_F(RefusedChunks, OfMoreChunksThanRows) {
  expect_refused(in_chunks({0, 5, 11, {14}}), 5, [&](Tape& t) { net.mlp(t.input(net.x, true)); },
                 {"nodes 0 to 5 cannot run in chunks", "extent of 10", "11 chunks"});
  expect_refused(in_chunks({0, 4, 3, {12}}), 4, [&](Tape& t) { net.mixer(t.input(net.x, true)); },
                 {"nodes 0 to 4 cannot run in chunks", "extent of 2", "3 chunks"});
}

TEST_F(RefusedChunks, WithAnOpThatLooksAlongTheIndex) {
  expect_refused(in_chunks({0, 2, 2, {4}}), 2,
                 [&](Tape& t) { gelu(apply<WholeOp>(t, {linear(t.input(net.x), net.square)})); },
                 {"nodes 0 to 2 cannot run in chunks", "whole (node 1) looks along the index"});
}

TEST_F(RefusedChunks, WithASumThatIsReadBeforeItIsComplete) {
  expect_refused(in_chunks({0, 7, 2, {18}}), 7,
                 [&](Tape& t) { scale(net.loss(net.mlp(t.input(net.x))), 7); },
                 {"nodes 0 to 7 cannot run in chunks", "scale (node 7) reads the sum",
                  "linear_cross_entropy", "complete only after the last chunk"});
}

TEST_F(RefusedChunks, WithAMeanLossAndNoLossScale) {
  TapeOptions how = in_chunks({0, 6, 2, {17}});
  how.loss_scale = {};
  expect_refused(how, 6, [&](Tape& t) { net.loss(net.mlp(t.input(net.x)), Reduction::mean); },
                 {"nodes 0 to 6 cannot run in chunks", "linear_cross_entropy (node 6)",
                  "number of valid targets of all rows", "loss scale"});
}

TEST_F(RefusedChunks, WithAGradientFormedInForward) {
  TapeOptions how = in_chunks({0, 6, 2, {17}});
  how.backward_follows = true;
  expect_refused(
      how, 6, [&](Tape& t) { net.loss(net.mlp(t.input(net.x, true))); },
      {"node 6", "linear_cross_entropy cannot be recomputed", "leave it out of regions"});
}

TEST_F(RefusedChunks, WithACache) {
  const Tensor keys({Shape{2, 2, 8, 4}}, stream), cached({Shape{2, 2, 8, 4}}, stream);
  TapeOptions how = in_chunks({0, 1, 2, {3}});
  how.recording = false;
  expect_refused(how, 1,
                 [&](Tape& t) {
                   cached_attention(linear(t.input(net.x), net.qkv), {keys, cached, 0}, {2, 2});
                 },
                 {"node 1", "cached_attention cannot be recomputed", "leave it out of regions"});
}

TEST_F(RefusedChunks, InsideOfOthersThatRunInChunks) {
  const auto make = [&](std::vector<Region> regions) {
    const Tape tape(stream, net.options({.regions = std::move(regions)}));
  };
  expect_error(ErrorKind::invalid, {"nodes 1 to 3 run in chunks", "inside nodes 0 to 5", "too"},
               [&] {
                 make({{0, 5, 2, {14}}, {1, 3, 2, {8}}});
               });
  expect_error(ErrorKind::invalid, {"nodes 0 to 5 run in chunks", "inside nodes 0 to 5"}, [&] {
    make({{0, 5, 2, {13}}, {0, 5, 2, {14}}});
  });
  expect_error(ErrorKind::invalid, {"nodes 1 to 3 are recomputed", "inside nodes 0 to 5", "chunks"},
               [&] {
                 make({{0, 5, 2, {14}}, {1, 3}});
               });
}

TEST_F(RefusedChunks, WithLeavesThatAreDoubledOrMissing) {
  const auto make = [&](std::vector<ValueId> leaves) {
    const Tape tape(stream, in_chunks({0, 5, 2, std::move(leaves)}));
  };
  expect_error(ErrorKind::invalid, {"nodes 0 to 5", "value 14 comes after value 14", "once"}, [&] {
    make({14, 14});
  });
  expect_error(ErrorKind::invalid, {"value 8 comes after value 14", "rising"}, [&] {
    make({14, 8});
  });
  expect_error(ErrorKind::invalid, {"nodes 0 to 5 run in 2 chunks and have no leaves"},
               [&] { make({}); });
}

TEST_F(RefusedChunks, ThatEndInsideACheckpoint) {
  expect_refused(in_chunks({0, 3, 2, {6}}), 3,
                 [&](Tape& t) {
                   const Var a = gelu(linear(t.input(net.x, true), net.square));
                   checkpoint(t, [&] { return gelu(gelu(gelu(a))); });
                 },
                 {"nodes 0 to 3", "ends inside the checkpoint that begins at node 2"});
}

TEST_F(RefusedChunks, ThatReachBeyondTheCheckpointAroundThem) {
  Tape tape(stream, in_chunks({1, 3, 2, {5}}));
  Var a = tape.input(net.x, true);
  a = checkpoint(tape, [&] { return gelu(linear(a, net.square)); });
  const uint64_t launches = stream.launches();
  const size_t live = stream.memory().live;
  for (int again = 0; again < 2; ++again) {
    expect_error(ErrorKind::invalid, {"nodes 1 to 3", "beyond the checkpoint", "after node 1"},
                 [&] { gelu(a); });
    EXPECT_EQ(tape.nodes().size(), 2u);
  }
  EXPECT_EQ(stream.launches(), launches);
  EXPECT_EQ(stream.memory().live, live);
}

TEST_F(RefusedChunks, ThatReachBeyondTheTape) {
  Tape tape(stream, in_chunks({1, 6, 2, {9}}));
  const Var first = linear(tape.input(net.x, true), net.square);
  const uint64_t launches = stream.launches();
  const Var last = gelu(gelu(first));
  expect_error(ErrorKind::invalid, {"nodes 1 to 6", "beyond the end of the tape", "3 nodes"}, [&] {
    tape.backward({{first, normal(first.shape(), DType::f32, stream, 9)}});
  });
  EXPECT_EQ(stream.launches(), launches) << "none of its ops has run";
  EXPECT_FALSE(last.is_readable());
}

// An op that cannot be the region's last leaves the tape able to take another one.
TEST_F(RefusedChunks, LeaveATapeThatGoesOn) {
  const TapeOptions how = in_chunks({0, 2, 2, {4}});
  const auto results = [&](bool fails) {
    Tape tape(stream, how);
    const Var x = tape.input(net.x, true), a = gelu(linear(x, net.square));
    if (fails) {
      expect_error(ErrorKind::invalid, {"whole (node 2) looks along"},
                   [&] { apply<WholeOp>(tape, {a}); });
    }
    const Var y = gelu(a);
    std::vector<double> all = values(y.tensor());
    tape.backward({{y, normal(y.shape(), DType::f32, stream, 9)}});
    for (const Tensor& t : {std::exchange(net.square.grad, {}), tape.grad(x)}) {
      for (const double g : values(t)) all.push_back(g);
    }
    return all;
  };
  EXPECT_EQ(results(true), results(false));
}

}  // namespace
}  // namespace spool::testing
