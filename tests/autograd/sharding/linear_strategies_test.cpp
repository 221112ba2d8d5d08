// The strategies of a linear, against those that ColossalAI lists.

#include <map>
#include <set>

#include "spool/autograd/sharding/linear_names.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

WholeOp linear(const Shape& x, int64_t outputs = 32) {
  const Spec y{x.with(x.rank() - 1, outputs)};
  WholeOp op =
      whole_op(parse_notation("nk,ok,+o->no"), {{x}, {{outputs, x.row()}}, {{outputs}}}, {y});
  op.input_names = {"x", "weight", "bias"};
  op.output_names = {"y"};
  return op;
}

struct Counted {
  size_t strategies = 0;
  std::multiset<std::string> names = {};
};

Counted counted(const WholeOp& op, const MeshAxes& mesh, Rows rows) {
  Counted all;
  for (const StrategyOrReason& s : all_strategies(op, mesh, rows)) {
    if (!s.strategy) continue;
    ++all.strategies;
    if (const auto name = colossalai_name(op, *s.strategy, mesh)) all.names.insert(*name);
  }
  return all;
}

TEST(LinearStrategies, Are36OfWhichColossalAiNames24) {
  const std::multiset<std::string> listed{
      "S0S1 = S0R x RS1_0", "S0S1 = S0R x RS1_1", "S0S1 = S0R x RS1_2", "S1S0 = S1R x RS0_0",
      "S1S0 = S1R x RS0_1", "S1S0 = S1R x RS0_2", "S0R = S0S1 x S1R_0", "S0R = S0S1 x S1R_1",
      "S0R = S0S1 x S1R_2", "S1R = S1S0 x S0R_0", "S1R = S1S0 x S0R_1", "S1R = S1S0 x S0R_2",
      "S01R = S01R x RR_0", "S01R = S01R x RR_1", "S01R = S01R x RR_2", "RS1 = RS0 x S0S1",
      "RS0 = RS1 x S1S0",   "RR = RS0 x S0R",     "RR = RS1 x S1R",     "RS0 = RR x RS0",
      "RS1 = RR x RS1",     "RR = RS01 x S01R",   "RS01 = RR x RS01",   "RR = RR x RR"};
  const Counted found = counted(linear({4, 4, 4, 16}), parse_mesh("2x2"), Rows::each);
  EXPECT_EQ(found.strategies, 36u);
  EXPECT_EQ(found.names, listed);
}

TEST(LinearStrategies, AreThoseThatDivide) {
  const auto expect = [](const Shape& x, size_t strategies, size_t named) {
    const Counted found = counted(linear(x), parse_mesh("2x2"), Rows::each);
    EXPECT_EQ(found.strategies, strategies) << x;
    EXPECT_EQ(found.names.size(), named) << x;
  };
  expect({1, 4, 4, 16}, 25, 19);
  expect({64, 16}, 16, 14);
  expect({4, 2, 4, 16}, 35, 23);
}

TEST(LinearStrategies, CutJoinedRowsAsOne) {
  EXPECT_EQ(counted(linear({4, 4, 4, 16}), parse_mesh("2x2"), Rows::joined).strategies, 16u);
  // 2 and 3 do not divide by 4; 12 rows do.
  EXPECT_EQ(counted(linear({2, 6, 16}), parse_mesh("2x2"), Rows::joined).strategies, 16u);
  EXPECT_EQ(counted(linear({3, 5, 16}), parse_mesh("2x2"), Rows::joined).strategies, 9u);
}

TEST(LinearStrategies, HaveNoNameOnOtherMeshesAndOfOtherOps) {
  EXPECT_TRUE(counted(linear({4, 16}), parse_mesh("2"), Rows::each).names.empty());
  EXPECT_TRUE(counted(linear({8, 16}), parse_mesh("2x2x2"), Rows::each).names.empty());
  const WholeOp add = whole_op(parse_notation("nc,nc->nc"), {{{4, 4}}, {{4, 4}}}, {{{4, 4}}});
  EXPECT_TRUE(counted(add, parse_mesh("2x2"), Rows::each).names.empty());
}

// The states of x, weight, bias and y, and what is summed, of a strategy by its indices.
std::string states_of(const std::string& indices) {
  static const WholeOp op = linear({4, 4, 4, 16});
  const MeshAxes mesh = parse_mesh("2x2");
  for (const StrategyOrReason& s : all_strategies(op, mesh, Rows::each)) {
    if (!s.strategy || in_words(*s.strategy, op, mesh, Rows::each) != indices) continue;
    std::string words;
    for (size_t i = 0; i < 3; ++i) {
      words += in_words(s.strategy->inputs[i], op.inputs[i].spec.shape.rank(), mesh) + ' ';
    }
    return words + in_words(s.strategy->outputs[0], 4, mesh);
  }
  return "none";
}

TEST(LinearStrategies, GiveEachOperandItsState) {
  EXPECT_EQ(states_of("--"), "RRRR RR R RRRR");
  EXPECT_EQ(states_of("-n0"), "S1RRR RR+H1 R+H1 S1RRR");
  EXPECT_EQ(states_of("-k"), "RRRS1 RS1 R+P1 RRRR+P1");
  EXPECT_EQ(states_of("-o"), "RRRR+H1 S1R S1 RRRS1");
  EXPECT_EQ(states_of("n0n0"), "S01RRR RR+H01 R+H01 S01RRR");
  EXPECT_EQ(states_of("n0n1"), "S0S1RR RR+H01 R+H01 S0S1RR");
  EXPECT_EQ(states_of("n0k"), "S0RRS1 RS1+H0 R+H0+P1 S0RRR+P1");
  EXPECT_EQ(states_of("n2o"), "RRS0R+H1 S1R+H0 S1+H0 RRS0S1");
  EXPECT_EQ(states_of("ko"), "RRRS0+H1 S1S0 S1+P0 RRRS1+P0");
  EXPECT_EQ(states_of("oo"), "RRRR+H01 S01R S01 RRRS01");
}

// "y 1 / dw 0, db 0": what is summed forward, then backward, along which axes.
std::string summed(const std::string& indices) {
  static const WholeOp op = linear({4, 4, 4, 16});
  const MeshAxes mesh = parse_mesh("2x2");
  const auto in_words_of = [](const std::vector<Sum>& sums, const char* names) {
    std::string words;
    for (const Sum& sum : sums) {
      words += (words.empty() ? "" : ", ") + std::string(1, names[sum.operand]) + ' ';
      for (const int axis : sum.axes) words += std::to_string(axis);
    }
    return words;
  };
  for (const StrategyOrReason& s : all_strategies(op, mesh, Rows::each)) {
    if (!s.strategy || in_words(*s.strategy, op, mesh, Rows::each) != indices) continue;
    const Sums sums = sums_of(op, *s.strategy, mesh, Rows::each);
    std::string words = in_words_of(sums.forward, "y") + " / " + in_words_of(sums.backward, "xwb");
    if (!sums.on_one_rank.empty()) words += " / " + in_words_of(sums.on_one_rank, "xwb");
    return words;
  }
  return "none";
}

TEST(LinearStrategies, SumWhatLacksAnIndexThatIsCut) {
  EXPECT_EQ(summed("--"), " / ");
  EXPECT_EQ(summed("-n0"), " / w 1, b 1");
  EXPECT_EQ(summed("-k"), "y 1 /  / b 1");
  EXPECT_EQ(summed("-o"), " / x 1");
  EXPECT_EQ(summed("n0n0"), " / w 01, b 01");
  EXPECT_EQ(summed("n0n1"), " / w 01, b 01");
  EXPECT_EQ(summed("n0k"), "y 1 / w 0, b 0 / b 1");
  EXPECT_EQ(summed("n0o"), " / x 1, w 0, b 0");
  EXPECT_EQ(summed("kk"), "y 01 /  / b 01");
  EXPECT_EQ(summed("ko"), "y 0 / x 1 / b 0");
  EXPECT_EQ(summed("oo"), " / x 01");
}

TEST(LinearStrategies, SayTheBytesOfSums) {
  const WholeOp op = linear({4, 4, 4, 16});
  const MeshAxes mesh = parse_mesh("2x4");
  const auto sums = [&](const CutIndices& axes) {
    return sums_of(op, strategy(op, axes, mesh, Rows::each).strategy.value(), mesh, Rows::each);
  };
  // y has 64 rows of 32 numbers, of 4 bytes; of 2 ranks each sends half of them twice.
  EXPECT_EQ(sums({{{'k'}, {}}}).forward[0].bytes, 64 * 32 * 4);
  // Half of the rows, of 4 ranks.
  EXPECT_EQ(sums({{{'n'}, {'k'}}}).forward[0].bytes, 2 * 32 * 32 * 4 * 3 / 4);
  // A quarter of the weight, and all of x, cut in half, of 4 ranks.
  const Sums both = sums({{{'n', 2}, {'o'}}});
  EXPECT_EQ(both.backward[0].bytes, 2 * 32 * 16 * 4 * 3 / 4);
  EXPECT_EQ(both.backward[1].bytes, 8 * 16 * 4);
}

}  // namespace
}  // namespace spool::testing
