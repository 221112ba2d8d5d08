// An op is made from a few numbers by the function that training calls, or refused in a sentence.

#include "spool/planner/sharding/described_op.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(DescribedOp, IsAsItsFunctionMakesIt) {
  const auto expect = [](const OpDescription& d, const std::vector<Shape>& inputs, const Shape& y) {
    const DescribedOp op = describe_op(d);
    const Node& node = op.node();
    ASSERT_EQ(op.program.nodes.size(), 1u) << d.op;
    ASSERT_EQ(node.inputs.size(), inputs.size()) << d.op;
    EXPECT_EQ(op.inputs.size(), inputs.size()) << d.op;
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(op.program.values[node.inputs[i]].spec.shape, inputs[i]) << d.op << " " << i;
    }
    EXPECT_EQ(op.program.values[node.outputs[0]].spec.shape, y) << d.op;
  };
  expect({.op = "linear", .shape = {4, 6, 16}, .out = 32}, {{4, 6, 16}, {32, 16}, {32}},
         {4, 6, 32});
  expect({.op = "linear", .shape = {16}, .out = 32, .no_bias = true}, {{16}, {32, 16}}, {32});
  expect({.op = "matmul", .shape = {6, 16}, .out = 8}, {{6, 16}, {16, 8}}, {6, 8});
  const Transposed a{.a = true}, both{.a = true, .b = true};
  expect({.op = "matmul", .shape = {3, 16, 6}, .out = 8, .transposed = a}, {{3, 16, 6}, {3, 16, 8}},
         {3, 6, 8});
  expect({.op = "matmul", .shape = {3, 16, 6}, .out = 8, .transposed = both, .shared = true},
         {{3, 16, 6}, {8, 16}}, {3, 6, 8});
  const Heads heads{.query = 6, .key = 2};
  expect({.op = "attention", .shape = {2, 8, 40}, .heads = heads}, {{2, 8, 40}}, {2, 8, 24});
  expect({.op = "rope", .shape = {2, 8, 40}, .heads = heads}, {{2, 8, 40}, {8, 4}}, {2, 8, 40});
  expect({.op = "head_norm", .shape = {2, 8, 40}, .heads = heads}, {{2, 8, 40}, {4}, {4}},
         {2, 8, 40});
  expect({.op = "embedding", .shape = {2, 8}, .vocab = 50, .channels = 4}, {{2, 8}, {50, 4}},
         {2, 8, 4});
  expect({.op = "embedding", .shape = {2, 8}, .vocab = 50, .channels = 4, .positions = 9},
         {{2, 8}, {50, 4}, {9, 4}}, {2, 8, 4});
  expect({.op = "loss", .shape = {2, 8, 4}, .vocab = 50}, {{2, 8, 4}, {50, 4}, {2, 8}}, {1});
  expect({.op = "layer_norm", .shape = {8, 4}}, {{8, 4}, {4}, {4}}, {8, 4});
  expect({.op = "rms_norm", .shape = {8, 4}}, {{8, 4}, {4}}, {8, 4});
  expect({.op = "swiglu", .shape = {8, 4}}, {{8, 4}}, {8, 2});
  expect({.op = "gelu", .shape = {8, 4}}, {{8, 4}}, {8, 4});
  expect({.op = "softmax", .shape = {8, 4}}, {{8, 4}}, {8, 4});
}

TEST(DescribedOp, IsRefusedWhereNumbersDoNotFit) {
  const auto refused = [](const OpDescription& d, std::initializer_list<std::string_view> words,
                          const std::string& setting) {
    const ErrorFields fields = expect_error(ErrorKind::invalid, words, [&] { describe_op(d); });
    EXPECT_TRUE(std::ranges::count(fields.settings, setting)) << d.op << " " << setting;
  };
  const Heads heads{.query = 6, .key = 2};
  refused({.op = "conv", .shape = {4, 4}}, {"no op 'conv'", "linear, matmul", "softmax"}, "op");
  refused({.op = "linear", .shape = {4, 4}}, {"linear needs out", "missing"}, "out");
  refused({.op = "embedding", .shape = {4, 4}, .vocab = 9}, {"channels is missing"}, "channels");
  refused({.op = "linear", .shape = {4, 4}, .out = 4, .heads = heads},
          {"linear has no heads", "out and no-bias"}, "heads");
  refused({.op = "gelu", .shape = {4, 4}, .no_bias = true}, {"takes nothing"}, "no-bias");
  refused({.op = "linear", .shape = {4, 4}, .out = 0}, {"out is 0", "1 or more"}, "out");
  refused({.op = "linear", .shape = {4, 0}, .out = 4}, {"(4, 0)", "1 or more"}, "shape");
  refused({.op = "linear", .shape = {4, 1 << 30}, .out = int64_t{1} << 40}, {"2^59"}, "shape");
  refused({.op = "matmul", .shape = {4}, .out = 4}, {"2 dimensions or more"}, "shape");
  refused({.op = "attention", .shape = {4, 40}, .heads = heads}, {"(4, 40)", "(B, T"}, "shape");
  refused({.op = "attention", .shape = {2, 4, 41}, .heads = heads}, {"41", "10 heads"}, "heads");
  refused({.op = "attention", .shape = {2, 4, 40}, .heads = Heads{.query = 5, .key = 2}},
          {"5 query heads", "2 key heads"}, "heads");
  refused({.op = "rope", .shape = {2, 4, 30}, .heads = heads}, {"even size"}, "shape");
  refused({.op = "rope", .shape = {40}, .heads = heads}, {"(B, T"}, "shape");
  refused({.op = "head_norm", .shape = {2, 4, 41}, .heads = heads}, {"10 heads"}, "heads");
  refused({.op = "embedding", .shape = {2, 3, 4}, .vocab = 9, .channels = 4}, {"(B, T)"}, "shape");
  refused({.op = "embedding", .shape = {2, 8}, .vocab = 9, .channels = 4, .positions = 7},
          {"8 tokens", "7"}, "positions");
  refused({.op = "loss", .shape = {4, 5}, .vocab = 9, .label_smoothing = 1.0F},
          {"label smoothing is 1"}, "label-smoothing");
  refused({.op = "swiglu", .shape = {4, 5}}, {"must be even"}, "shape");
}

}  // namespace
}  // namespace spool::testing
