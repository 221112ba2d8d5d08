// The cut of consecutive nodes along an index: its extent, the values that carry it, and in a
// sentence why there is none.

#include "spool/autograd/chunks/cut.h"

#include <numeric>

#include "spool/runtime/meta/stream.h"
#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

// An op of any notation, whose output has any shape; it runs on meta only.
struct NotedOp final : Op {
  const char* notation;
  Shape shape;
  NotedOp(const char* n, const Shape& s) : notation(n), shape(s) {}

  const char* name() const override { return "noted"; }
  const char* indices() const override { return notation; }
  Specs infer(const Specs& in) const override { return {{shape, in[0].dtype}}; }
  void forward(Forward&) const override {}
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward&) const override {}
};

class ChunkCut : public ::testing::Test {
 protected:
  MetaStream stream{Machine{}};

  using Body = std::function<void(Net&, const Var& x)>;
  Program record(const NetOptions& options, const Body& body, TapeOptions how = {}) {
    Net net(stream, options);
    how.random = net.random;
    Tape tape(stream, std::move(how));
    body(net, tape.input(net.x, /*needs_grad=*/true));
    return tape.take_program();
  }
  Program record(const Body& body) { return record({}, body); }

  static Var noted(const Var& x, const char* notation, const Shape& shape) {
    return apply<NotedOp>(x.tape(), {x}, notation, shape);
  }
  static void expect_obstacle(const Program& program, std::initializer_list<const char*> words) {
    const Cut c = cut(program, 0, program.nodes.next_id() - 1);
    EXPECT_FALSE(c);
    for (const char* const word : words) EXPECT_TRUE(contains(c.obstacle, word)) << c.obstacle;
  }
};

std::vector<NodeId> nodes_up_to(NodeId last) {
  std::vector<NodeId> all(static_cast<size_t>(last) + 1);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST_F(ChunkCut, IsAlongTheRowsOfAnMlpAndItsLoss) {
  const Program program = record([](Net& n, const Var& x) { n.loss(n.mlp(x)); });
  const Cut c = cut(program, 0, 6);
  ASSERT_TRUE(c) << c.obstacle;
  EXPECT_EQ(c.extent, 10);
  EXPECT_EQ(c.nodes, nodes_up_to(6));
  for (const Node& node : program.nodes) {
    const bool is_loss = node.op->name() == std::string_view("linear_cross_entropy");
    for (const ValueId v : node.outputs) EXPECT_EQ(c.carries(v), !is_loss) << v;
  }
  // x, 6 parameters, the head and the targets.
  EXPECT_EQ(c.inputs.size(), 9u);
  for (const ValueId v : c.inputs) {
    EXPECT_EQ(c.carries(v), program.values[v].parameter == nullptr) << v;
  }
}

TEST_F(ChunkCut, IsAlongTheBatchWithAttentionOrAnEmbeddingInside) {
  const Program block = record([](Net& n, const Var& x) { n.mlp(n.mixer(x)); });
  EXPECT_EQ(cut(block, 0, 10).extent, 2);
  EXPECT_EQ(cut(block, 3, 10).extent, 10) << "behind the attention";
  const Program tokens = record(
      [](Net& n, const Var& x) { n.mlp(embedding(x.tape().input(n.tokens), n.tokens_weight)); });
  EXPECT_EQ(cut(tokens, 0, 6).extent, 10) << "an embedding without positions is along all rows";
}

TEST_F(ChunkCut, DividesStatisticsInProportion) {
  const Program block = record([](Net& n, const Var& x) { n.mixer(x); });
  const Cut c = cut(block, 0, 4);
  const ValueId mean = block.nodes[0].outputs[1];
  EXPECT_TRUE(c.carries(mean));
  EXPECT_EQ(block.values[mean].spec.shape, Shape({10}));
  EXPECT_EQ(part(block.values[mean].spec.shape, c.extent, 1), Shape({5}));
}

TEST_F(ChunkCut, LeavesOutNodesThatDoNotCarryTheIndex) {
  const Program program = program_of(chunk_case("a_node_without_the_index"));
  const Cut c = cut(program, 0, 3);
  EXPECT_EQ(c.extent, 10);
  EXPECT_EQ(c.nodes, (std::vector<NodeId>{1, 2, 3}));
  const ValueId twice = program.nodes[0].outputs[0];
  EXPECT_NE(std::ranges::find(c.inputs, twice), c.inputs.end());
  EXPECT_FALSE(c.carries(twice));
}

TEST_F(ChunkCut, AnExtentOfOneIsAnObstacle) {
  expect_obstacle(record({.B = 1, .T = 1}, [](Net& n, const Var& x) { n.mlp(x); }),
                  {"its index has an extent of 1"});
  expect_obstacle(record({.B = 1}, [](Net& n, const Var& x) { n.mixer(x); }), {"extent of 1"});
}

TEST_F(ChunkCut, AnOpThatLooksAlongTheIndexIsAnObstacle) {
  expect_obstacle(
      record([](Net& n, const Var& x) { noted(linear(x, n.square), "NC->NC", x.shape()); }),
      {"noted (node 1) looks along the index", "f32 (2, 5, 8)", "whole"});
}

TEST_F(ChunkCut, ASumReadBeforeItIsCompleteIsAnObstacle) {
  expect_obstacle(record([](Net& n, const Var& x) { scale(n.loss(n.mlp(x)), 7); }),
                  {"scale (node 7) reads the sum f32 (1) of linear_cross_entropy",
                   "complete only after the last chunk"});
}

TEST_F(ChunkCut, AnIndexThatIsNotInFrontIsAnObstacle) {
  expect_obstacle(record([](Net& n, const Var& x) {
                    noted(linear(x, n.square), "nc->cn", {8, 10});
                  }),
                  {"noted (node 1) has the index inside of f32 (8, 10), not in front"});
}

TEST_F(ChunkCut, AnIndexAlongWhichPartsAreJoinedIsAnObstacle) {
  expect_obstacle(record([](Net& n, const Var& x) { noted(linear(x, n.square), "v*C->", {1}); }),
                  {"noted (node 1) has parts along the index that need each other's numbers"});
}

TEST_F(ChunkCut, WhatIsAddedOnceToASumIsAnObstacle) {
  expect_obstacle(record([](Net& n, const Var& x) {
                    const Var bias = x.tape().input(Tensor({Shape{8}}, n.stream));
                    apply<NotedOp>(x.tape(), {linear(x, n.square), bias}, "nc,+c->c", Shape{8});
                  }),
                  {"noted (node 1) adds f32 (8) once to a sum over the index"});
}

TEST_F(ChunkCut, AnIndexTwiceIsAnObstacle) {
  expect_obstacle(record([](Net& n, const Var& x) {
                    const Var y = linear(x, n.square);
                    apply<NotedOp>(x.tape(), {y, y}, "nc,mc->nm", Shape{10, 10});
                  }),
                  {"noted (node 1) has the index twice"});
}

TEST_F(ChunkCut, AnIndexInAParameterIsAnObstacle) {
  Parameter rows{.name = "rows", .data = Tensor({Shape{2, 5, 8}}, stream)};
  expect_obstacle(record([&](Net& n, const Var& x) {
                    const Var y = linear(x, n.square);
                    apply<NotedOp>(x.tape(), {Operand(y), Operand(rows)}, "nc,nc->nc", y.shape());
                  }),
                  {"noted (node 1) has the index in a parameter, f32 (2, 5, 8)"});
}

TEST_F(ChunkCut, AGradientFormedInForwardIsAnObstacle) {
  const Program program =
      record({}, [](Net& n, const Var& x) { n.loss(n.mlp(x)); }, {.backward_follows = true});
  expect_obstacle(
      program, {"linear_cross_entropy (node 6) has an effect beyond its outputs", "must run once"});
}

TEST_F(ChunkCut, ACacheIsAnObstacle) {
  const Tensor keys({Shape{2, 2, 16, 4}}, stream), cached({Shape{2, 2, 16, 4}}, stream);
  const Program program = record({},
                                 [&](Net& n, const Var& x) {
                                   cached_attention(linear(x, n.qkv), {keys, cached, 0}, {2, 2});
                                 },
                                 {.recording = false});
  expect_obstacle(program, {"cached_attention (node 1) has an effect beyond its outputs"});
}

TEST_F(ChunkCut, OpsWithoutAnIndexAreAnObstacle) {
  expect_obstacle(record([](Net&, const Var& x) { noted(x, "NC->NC", x.shape()); }),
                  {"none of its ops has an index that leads its values"});
}

TEST_F(ChunkCut, ExtentsThatDoNotDivideAreAnObstacle) {
  expect_obstacle(record([](Net& n, const Var& x) {
                    gelu(noted(linear(x, n.square), "nc->nc", {3, 8}));
                  }),
                  {"does not divide into the 3"});
}

TEST_F(ChunkCut, RefusesNodesThatTheProgramLacks) {
  const Program program = record([](Net& n, const Var& x) { n.mlp(x); });
  for (const auto& [first, last] : {std::pair{0, 6}, {-1, 2}, {3, 2}}) {
    expect_error(ErrorKind::invalid, {"cut: nodes", "of a tape of 6"},
                 [&, a = first, b = last] { cut(program, a, b); });
  }
}

TEST(PartOfAValue, IsItsRows) {
  EXPECT_EQ(part(Shape{2, 5, 8}, 10, 4), Shape({4, 8}));
  EXPECT_EQ(part(Shape{2, 5, 8}, 2, 1), Shape({1, 5, 8}));
  EXPECT_EQ(part(Shape{10}, 10, 3), Shape({3}));
  EXPECT_EQ(part(Shape{10}, 2, 1), Shape({5}));
  EXPECT_EQ(part(Shape{6, 4}, 3, 2), Shape({4, 4}));
  expect_error(ErrorKind::invalid, {"a part of (2, 5, 8) was asked for", "index of 3"}, [] {
    part(Shape{2, 5, 8}, 3, 1);
  });
}

TEST(PartOfAValue, IsInPlace) {
  CpuStream stream(size_t{1} << 20, 1);
  const Tensor x = normal({2, 5, 8}, DType::f32, stream, 1);
  const std::vector<double> all = values(x);
  const size_t live = stream.memory().live;
  const Tensor rows = part(x, 10, {4, 7});
  EXPECT_EQ(stream.memory().live, live);
  EXPECT_EQ(rows.shape(), Shape({3, 8}));
  EXPECT_EQ(values(rows), std::vector(all.begin() + 32, all.begin() + 56));
  const View view = part(x.view(), 10, {4, 7});
  EXPECT_EQ(view.data(), rows.view().data());
  EXPECT_EQ(view.spec(), rows.spec());
  EXPECT_FALSE(part(Tensor(), 10, {4, 7}));
}

TEST(LeavesOfASpan, AreWhatIsReadOutsideOrObserved) {
  const Program program = program_of(chunk_case("several_leaves"));
  const auto output = [&](NodeId n) { return program.nodes[n].outputs[0]; };
  EXPECT_EQ(find_leaves(program, 0, 3), (std::vector{output(0), output(1), output(3)}));
  EXPECT_EQ(find_leaves(program, 2, 3), std::vector{output(3)});
  // The last two nodes compute what the caller takes.
  EXPECT_EQ(find_leaves(program, 4, 6), (std::vector{output(5), output(6)}));
}

}  // namespace
}  // namespace spool::testing
