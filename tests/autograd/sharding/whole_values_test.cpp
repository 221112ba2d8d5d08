// The parts of dimensions in programs: those of packed heads reach the weights behind them.

#include <deque>

#include "spool/autograd/ops.h"
#include "spool/autograd/sharding/strategies.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// Records ops on meta.
class WholeValuesOfPrograms : public ::testing::Test {
 protected:
  static constexpr int64_t B = 4, T = 6, C = 32, D = 4;

  Parameter& weight(const Shape& shape) {
    return parameters_.emplace_back(Parameter{.data = Tensor({shape}, stream_)});
  }
  Var input(const Shape& shape, DType type = DType::f32) {
    return tape_.input(Tensor({shape, type}, stream_));
  }
  void finish() {
    program_ = tape_.take_program();
    values_ = whole_values(program_);
  }
  // "64+16+16 by 2": the parts and the units of a dimension.
  std::string parts_of(ValueId v, int dimension) const {
    const DimensionParts& d =
        values_[static_cast<size_t>(v)].dimensions[static_cast<size_t>(dimension)];
    std::string words;
    for (const int64_t part : d.parts) words += (words.empty() ? "" : "+") + std::to_string(part);
    return words + " by " + std::to_string(d.units);
  }
  // Of the dimension of a parameter.
  std::string parts_of(const Parameter& p, int dimension) const {
    for (ValueId v = 0; v < program_.values.next_id(); ++v) {
      if (program_.values[v].parameter == &p) return parts_of(v, dimension);
    }
    return "none";
  }
  NodeId node_of(const std::string& op, int which = 0) const {
    for (NodeId n = 0; n < program_.nodes.next_id(); ++n) {
      if (program_.nodes[n].op->name() == op && which-- == 0) return n;
    }
    return -1;
  }
  // Why an op has no strategy that cuts this index; empty: it has one.
  std::string why_not(NodeId node, char index, const char* mesh) const {
    return strategy(whole_op(program_, node, values_), {{{index}}}, parse_mesh(mesh)).why;
  }

  MetaStream stream_{Machine{}};
  std::deque<Parameter> parameters_ = {};
  Tensor random_{{Shape{4}, DType::i32}, stream_};
  Tape tape_{stream_, {.random = random_}};
  Program program_ = {};
  std::vector<WholeValue> values_ = {};
};

TEST_F(WholeValuesOfPrograms, OfABlockOfGpt2HaveThreePartsBehindAttention) {
  const Heads heads{.query = 8, .key = 8};
  Parameter &norm = weight({C}), &bias = weight({C}), &c_attn = weight({3 * C, C}),
            &c_attn_bias = weight({3 * C}), &c_proj = weight({C, C}), &c_fc = weight({4 * C, C}),
            &c_fc_bias = weight({4 * C}), &down = weight({C, 4 * C});
  const Var x = input({B, T, C});
  Var h = attention(linear(layer_norm(x, norm, bias), c_attn, c_attn_bias), heads);
  h = add(x, dropout(linear(h, c_proj), 0.1F));
  add(h, linear(gelu(linear(layer_norm(h, norm, bias), c_fc), c_fc_bias), down));
  finish();
  EXPECT_EQ(parts_of(c_attn, 0), "32+32+32 by 8");
  EXPECT_EQ(parts_of(c_attn_bias, 0), "32+32+32 by 8");
  EXPECT_EQ(parts_of(c_attn, 1), "32 by 32");
  // Heads reach what reads attention, in units of a head.
  EXPECT_EQ(parts_of(c_proj, 1), "32 by 8");
  EXPECT_EQ(parts_of(c_proj, 0), "32 by 32");
  EXPECT_EQ(parts_of(c_fc, 0), "128 by 128");
  EXPECT_EQ(parts_of(x.id(), 2), "32 by 32");
  EXPECT_EQ(why_not(node_of("linear"), 'o', "8"), "");
  EXPECT_EQ(
      why_not(node_of("linear"), 'o', "16"),
      "input 1 (96, 32): its dimension 0 has parts of 32, 32 and 32, each of 8 units, which 16 "
      "ranks do not divide; 1, 2, 4 or 8 would");
  for (NodeId n = 0; n < program_.nodes.next_id(); ++n) {
    for (const char index : parse_notation(program_.nodes[n].op->indices()).separable()) {
      EXPECT_EQ(why_not(n, index, "4"), "") << program_.nodes[n].op->name();
    }
  }
}

TEST_F(WholeValuesOfPrograms, OfABlockOfLlamaHavePartsInGroupsOfAKeyHead) {
  const Heads heads{.query = 8, .key = 2};
  Parameter &norm = weight({C}), &qkv = weight({12 * D, C}), &query = weight({D}),
            &key = weight({D}), &out = weight({C, 8 * D}), &gate_up = weight({2 * 48, C}),
            &down = weight({C, 48});
  const Var x = input({B, T, C}), table = input({T, D});
  Var h = head_norm(linear(rms_norm(x, norm), qkv), query, key, heads);
  h = attention(rope(h, table, heads), heads);
  h = add(x, linear(h, out));
  add(h, linear(swiglu(linear(rms_norm(h, norm), gate_up)), down));
  finish();
  EXPECT_EQ(parts_of(qkv, 0), "32+8+8 by 2");
  EXPECT_EQ(parts_of(out, 1), "32 by 2");
  EXPECT_EQ(parts_of(gate_up, 0), "48+48 by 48");
  EXPECT_EQ(parts_of(down, 1), "48 by 48");
  EXPECT_EQ(parts_of(query, 0), "4 by 4");
  for (NodeId n = 0; n < program_.nodes.next_id(); ++n) {
    for (const char index : parse_notation(program_.nodes[n].op->indices()).separable()) {
      EXPECT_EQ(why_not(n, index, "2"), "") << program_.nodes[n].op->name() << ' ' << index;
    }
  }
  EXPECT_NE(why_not(node_of("attention"), 'h', "4"), "");
}

TEST_F(WholeValuesOfPrograms, ReachWeightsThroughConcatAndSlice) {
  const Heads heads{.query = 8, .key = 2};
  Parameter &query = weight({8 * D, C}), &key = weight({2 * D, C}), &value = weight({2 * D, C});
  const Var x = input({B, T, C});
  const Var qkv = concat({linear(x, query), linear(x, key), linear(x, value)}, -1);
  attention(qkv, heads);
  const Var queries = slice(qkv, -1, {0, 8 * D});
  finish();
  EXPECT_EQ(parts_of(qkv.id(), 2), "32+8+8 by 2");
  // Its own parts: concat alone cuts it.
  EXPECT_EQ(parts_of(query, 0), "32 by 8");
  EXPECT_EQ(parts_of(key, 0), "8 by 8");
  EXPECT_EQ(parts_of(queries.id(), 2), "32 by 16");
  EXPECT_EQ(why_not(node_of("concat"), 'z', "2"), "");
  EXPECT_NE(why_not(node_of("concat"), 'z', "4"), "");
  // The slice sees two parts where concat and attention see three.
  EXPECT_TRUE(contains(why_not(node_of("slice"), 'z', "2"), "asks for parts of 32 and 16"));
}

TEST_F(WholeValuesOfPrograms, HaveThePartsThatTheFirstOpAsksFor) {
  Parameter& up = weight({48, C});
  const Var x = input({B, T, C}), h = linear(x, up);
  swiglu(h);
  attention(h, {.query = 4, .key = 4});
  finish();
  EXPECT_EQ(parts_of(up, 0), "24+24 by 24");
  EXPECT_EQ(why_not(node_of("swiglu"), 'i', "2"), "");
  EXPECT_EQ(why_not(node_of("linear"), 'o', "2"), "");
  EXPECT_EQ(
      why_not(node_of("attention"), 'h', "2"),
      "input 0 (4, 6, 48): the index h asks for parts of 16, 16 and 16 along its dimension 2, "
      "and another op for parts of 24 and 24; a dimension is cut in one way");
  EXPECT_EQ(why_not(node_of("attention"), 'b', "2"), "");
}

// Heads by hand: what reshape makes of a packed dimension has its own parts.
TEST_F(WholeValuesOfPrograms, OfHeadsByHandAreWholeWhereTheyAreNotAlike) {
  Parameter& weight_of_all = weight({12 * D, C});
  const Var x = input({B, T, C});
  const Var heads = reshape(linear(x, weight_of_all), {B, T, 12, D});
  slice(heads, 2, {0, 8});
  finish();
  EXPECT_EQ(parts_of(weight_of_all, 0), "48 by 12");
  EXPECT_EQ(parts_of(heads.id(), 2), "8+4 by 4");
  const NodeId reshaped = node_of("reshape"), sliced = node_of("slice");
  const std::string of_heads = program_.nodes[reshaped].op->indices();
  EXPECT_NE(why_not(reshaped, of_heads[3], "2"), "") << of_heads;
  EXPECT_NE(program_.nodes[sliced].op->indices(), std::string());
}

}  // namespace
}  // namespace spool::testing
