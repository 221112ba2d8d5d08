// Strategies of ops other than a linear: joined indices, what is added once, integers, parts; and
// why some are none.

#include "spool/autograd/sharding/strategies.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

WholeOp op_of(const char* notation, const Specs& inputs, const Specs& outputs) {
  return whole_op(parse_notation(notation), inputs, outputs);
}

// "RR+H0, R / R": the states of inputs and outputs, or why there are none.
std::string states(const WholeOp& op, const char* indices, const char* mesh_text,
                   Rows rows = Rows::joined) {
  const MeshAxes mesh = parse_mesh(mesh_text);
  CutIndices axes;
  for (size_t a = 0; indices[a]; ++a) axes[a].index = indices[a] == '-' ? ' ' : indices[a];
  const StrategyOrReason s = strategy(op, axes, mesh, rows);
  if (!s.strategy) return s.why;
  EXPECT_EQ(in_words(*s.strategy, op, mesh), indices);
  std::string words;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    words +=
        (i ? ", " : "") + in_words(s.strategy->inputs[i], op.inputs[i].spec.shape.rank(), mesh);
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    words += (i ? ", " : " / ") +
             in_words(s.strategy->outputs[i], op.outputs[i].spec.shape.rank(), mesh);
  }
  return words;
}

TEST(StrategiesOfOps, AreInAFixedOrderTheFirstIdle) {
  const WholeOp op = op_of("nk,ok->no", {{{4, 8}}, {{8, 8}}}, {{{4, 8}}});
  const MeshAxes mesh = parse_mesh("2x2");
  std::string words;
  for (const auto& s : all_strategies(op, mesh)) words += in_words(*s.strategy, op, mesh) + ' ';
  EXPECT_EQ(words, "-- -n -k -o n- nn nk no k- kn kk ko o- on ok oo ");
}

TEST(StrategiesOfOps, JoinWhatTheNotationMarks) {
  const WholeOp op = op_of("nC,v*C,n->", {{{4, 8}}, {{16, 8}}, {{4}, DType::i32}}, {{Shape{}}});
  EXPECT_EQ(states(op, "v", "2"), "RR+H0, S0R, R / ");
  EXPECT_EQ(states(op, "n", "2"), "S0R, RR+H0, S0 / +P0");
  EXPECT_EQ(states(op, "nv", "2x4"), "S0R+H1, S1R+H0, S0 / +P0");
  const Sums sums =
      sums_of(op, *strategy(op, {{{'v'}}}, parse_mesh("2")).strategy, parse_mesh("2"));
  EXPECT_TRUE(sums.forward.empty());
  ASSERT_EQ(sums.backward.size(), 1u);
  EXPECT_EQ(sums.backward[0].operand, 0u);
  EXPECT_EQ(sums.backward[0].bytes, 4 * 8 * 4);
}

TEST(StrategiesOfOps, AddOnceWhatIsAddedToASum) {
  // The rows of tokens of another part of the vocabulary are zeros.
  const WholeOp op =
      op_of("bT,vc,+Tc->bTc", {{{4, 3}, DType::i32}, {{8, 6}}, {{3, 6}}}, {{{4, 3, 6}}});
  EXPECT_EQ(states(op, "b", "2"), "S0R, RR+H0, RR+H0 / S0RR");
  EXPECT_EQ(states(op, "v", "2"), "RR, S0R, RR+P0 / RRR+P0");
  EXPECT_EQ(states(op, "c", "2"), "RR, RS0, RS0 / RRS0");
  const MeshAxes mesh = parse_mesh("2");
  const Sums sums = sums_of(op, *strategy(op, {{{'v'}}}, mesh).strategy, mesh);
  ASSERT_EQ(sums.forward.size(), 1u);
  ASSERT_EQ(sums.on_one_rank.size(), 1u);
  EXPECT_TRUE(sums.on_one_rank[0].operand == 2 && sums.on_one_rank[0].bytes == 0);
  EXPECT_TRUE(sums.backward.empty());
}

TEST(StrategiesOfOps, SumNoIntegers) {
  const WholeOp op = op_of("nk,n->n", {{{4, 8}}, {{4}}}, {{{4}, DType::i32}});
  EXPECT_EQ(
      states(op, "k", "2"),
      "output 0 (4) lacks the index k, so parts would be summed, and it is of integers, which "
      "are not");
  EXPECT_EQ(states(op, "n", "2"), "S0R, S0 / S0");
  const WholeOp ids = op_of("nk,n,+n->", {{{4, 8}}, {{4}, DType::i32}, {{4}, DType::i32}}, {{{1}}});
  EXPECT_EQ(states(ids, "k", "2"), "RS0, R, R / R+P0");
}

TEST(StrategiesOfOps, CutPartsInUnits) {
  // 8 groups of a key head and two queries, of 4 numbers each.
  WholeOp op = op_of("bT(8h+4h+4h),bT->bT(8h),b(2h)T", {{{4, 3, 128}}, {{4, 3}, DType::i32}},
                     {{{4, 3, 64}}, {{4, 16, 3}}});
  EXPECT_EQ(states(op, "h", "4"), "RRS0, RR / RRS0, RS0R");
  EXPECT_EQ(states(op, "hb", "2x2"), "S1RS0, S1R / S1RS0, S1S0R");
  EXPECT_EQ(
      states(op, "h", "16"),
      "input 0 (4, 3, 128): its dimension 2 has parts of 64, 32 and 32, each of 8 units, which "
      "16 ranks do not divide; 1, 2, 4 or 8 would");
  op.input_names = {"qkv"};
  op.counted['h'] = "key heads";
  EXPECT_EQ(states(op, "h", "16"),
            "the 8 key heads of qkv (4, 3, 128) do not divide by 16; 1, 2, 4 or 8 would");
}

TEST(StrategiesOfOps, ThatDoNotDivideSayWhatWould) {
  WholeOp op = op_of("nk,ok->no", {{{4, 2, 4, 16}}, {{7, 16}}}, {{{4, 2, 4, 7}}});
  op.input_names = {"x", "weight"};
  const auto why = [&](CutIndex cut, const char* mesh, Rows rows) {
    return strategy(op, {{cut}}, parse_mesh(mesh), rows).why;
  };
  EXPECT_EQ(why({'n', 1}, "4", Rows::each),
            "x (4, 2, 4, 16): its dimension 1 is 2, which 4 ranks do not divide; 1 or 2 would");
  EXPECT_EQ(why({'o'}, "2", Rows::joined),
            "weight (7, 16): its dimension 0 is 7, which 2 ranks do not divide; only 1 would");
  EXPECT_EQ(
      why({'n'}, "3", Rows::joined),
      "x (4, 2, 4, 16): its first 3 dimensions have 32 rows, which 3 ranks do not divide; 1 or "
      "2 would");
  EXPECT_EQ(
      why({'k'}, "64", Rows::joined),
      "x (4, 2, 4, 16): its dimension 3 is 16, which 64 ranks do not divide; 1, 2, 4, 8 or 16 "
      "would");
  EXPECT_EQ(why({'n', 3}, "2", Rows::each),
            "x (4, 2, 4, 16) has no dimension 3 of the index n, which another operand has");
  // Two axes: the product divides, or not.
  EXPECT_EQ(
      states(op, "kk", "4x8"),
      "x (4, 2, 4, 16): its dimension 3 is 16, which 32 ranks do not divide; 1, 2, 4, 8 or 16 "
      "would");
}

TEST(StrategiesOfOps, RefuseADimensionThatAnotherOpCutsInOtherParts) {
  const Specs x{{{4, 12}}};
  const WholeOp packed = op_of("n(2h+h+h)->n(2h)", x, {{{4, 6}}});
  WholeOp halves = op_of("n(i+i)->ni", x, {{{4, 6}}});
  halves.inputs[0] = packed.inputs[0];
  EXPECT_EQ(states(halves, "i", "3"),
            "input 0 (4, 12): the index i asks for parts of 6 and 6 along its dimension 1, and "
            "another op for parts of 6, 3 and 3; a dimension is cut in one way");
  EXPECT_EQ(states(halves, "n", "2"), "S0R / S0R");
  // Elementwise ops cut any parts, if all of their operands have the same.
  WholeOp add = op_of("nc,nc->nc", {{{4, 12}}, {{4, 12}}}, {{{4, 12}}});
  add.inputs[0] = add.inputs[1] = add.outputs[0] = packed.inputs[0];
  EXPECT_EQ(states(add, "c", "3"), "RS0, RS0 / RS0");
  add.outputs[0] = plain_value({{4, 12}});
  EXPECT_EQ(states(add, "c", "3"),
            "output 0 (4, 12): the index c asks for parts of 6, 3 and 3 along its dimension 1, and "
            "another op for parts of 12; a dimension is cut in one way");
  // One index in units here, and in parts there.
  WholeOp heads = op_of("n(3h)->nhD", x, {{{4, 4, 3}}});
  EXPECT_EQ(states(heads, "h", "2"), "RS0 / RS0R");
  heads.outputs[0].dimensions[1] = {.parts = {2, 1, 1}, .units = 1};
  EXPECT_EQ(states(heads, "h", "2").substr(0, 9), "output 0 ");
}

TEST(StrategiesOfOps, TakeRowsOfAnyRank) {
  // The first index stands for two dimensions here, and for one there.
  const WholeOp op = op_of("n->n", {{{2, 6}}}, {{{12}}});
  EXPECT_EQ(states(op, "n", "2"), "S0R / S0");
  EXPECT_EQ(states(op, "n", "4"), "S0R / S0");
  EXPECT_EQ(
      states(op, "n", "5"),
      "input 0 (2, 6): its first 2 dimensions have 12 rows, which 5 ranks do not divide; 1, 2, "
      "3 or 4 would");
}

TEST(StrategiesOfOps, OfAMeshOfFourAxes) {
  const WholeOp op = op_of("nk,ok->no", {{{16, 16}}, {{16, 16}}}, {{{16, 16}}});
  EXPECT_EQ(all_strategies(op, parse_mesh("2x2x2x2")).size(), 256u);
  EXPECT_EQ(states(op, "nonk", "2x2x2x2"), "S02S3+H1, S1S3+H02 / S02S1+P3");
}

}  // namespace
}  // namespace spool::testing
