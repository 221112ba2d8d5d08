// Every op's index notation is true, forward and backward: on every sample of the table, chunks
// along a separable index make up the whole, and an element of an input matters only where its
// separable indices agree with the output's.

#include <map>

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/autograd/notation_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

struct Precision {
  DType type;
  double rounding;  // of sums over chunks, relative to the largest number
};
constexpr Precision precisions[] = {{DType::f64, 1e-14}, {DType::f32, 2e-6}, {DType::bf16, 2e-2}};

struct NotationCase {
  std::string name;
  std::function<AppliedOp()> make;
};

// It has no backward, and writes to its caches in forward, so only its forward is covered here.
AppliedOp applied_cached_attention() {
  constexpr int64_t B = 3, new_tokens = 2, D = 4, positions = 6;
  constexpr Heads heads{.query = 4, .key = 2};
  CpuStream stream(op_memory, 1);
  const auto numbers = [&](const Shape& shape, uint64_t seed) {
    const Tensor t = normal(shape, DType::f64, stream, seed);
    return HostTensor{t.spec(), values(t)};
  };
  AppliedOp applied{.inputs = {numbers({B, new_tokens, (heads.query + 2 * heads.key) * D}, 1),
                               numbers({B, heads.key, positions, D}, 2),
                               numbers({B, heads.key, positions, D}, 3)},
                    .operands = {0, 1, 2},
                    .recording = false};
  const auto tensor = [&](size_t i) { return Tensor(applied.inputs[i].spec, stream); };
  Tape tape(stream, {.recording = false});
  const KeyValueLayer layer{.keys = tensor(1), .values = tensor(2), .position = 3};
  cached_attention(tape.input(tensor(0)), layer, heads);
  Program program = tape.take_program();
  applied.op = std::move(program.nodes.front().op);
  return claiming(applied, applied.op->indices());
}

std::vector<NotationCase> notation_cases() {
  std::vector<NotationCase> all;
  for (const OpSample& sample : op_samples()) {
    all.push_back({sample.name, [=] { return applied_op(sample); }});
    // Its gradients are formed in forward, and corrected in backward.
    if (!sample.name.starts_with("linear_cross_entropy") || sample.name.ends_with("none")) continue;
    all.push_back({sample.name + "_in_forward", [=] { return applied_op(sample, true); }});
  }
  all.push_back({"cached_attention", applied_cached_attention});
  return all;
}

class NotationOf : public ::testing::TestWithParam<NotationCase> {
 protected:
  const AppliedOp applied = GetParam().make();

  void expect_whole(char index, ChunkForm form) {
    for (const auto& [type, rounding] : precisions) {
      const AppliedOp typed = in_type(applied, type);
      for (const int64_t chunks : {2, 3, 100}) {
        const auto [outputs, gradients] = difference_of_chunks(typed, {index, chunks, form});
        EXPECT_LT(outputs, rounding) << chunks << " chunks along " << index << ", " << name(type);
        EXPECT_LT(gradients, rounding) << chunks << " chunks along " << index << ", " << name(type);
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Op, NotationOf, ::testing::ValuesIn(notation_cases()),
                         [](const auto& one) { return one.param.name; });

TEST_P(NotationOf, HasOneExtentForEachIndex) {
  std::map<char, int64_t> seen;
  const auto see = [&](const std::string& term, const Shape& shape) {
    const std::vector<int64_t> each = extents(term, shape);
    for (size_t i = 0; i < each.size(); ++i) {
      EXPECT_EQ(seen.emplace(term[i], each[i]).first->second, each[i]) << term[i] << ", " << shape;
    }
  };
  const std::vector<Spec> out = applied.output_specs();
  EXPECT_LE(applied.notation.outputs.size(), out.size());
  for (size_t i = 0; i < applied.inputs.size(); ++i) {
    see(applied.term_of_input(i), applied.inputs[i].spec.shape);
  }
  for (size_t i = 0; i < out.size(); ++i) see(applied.term_of_output(i), out[i].shape);
}

TEST_P(NotationOf, ChunksAlongALeadingIndexMakeUpTheWholeForwardAndBackward) {
  const std::string indices = leading_indices(applied.notation);
  ASSERT_FALSE(indices.empty()) << "every op has some index it can be cut along";
  for (const char index : indices) {
    expect_whole(index, ChunkForm::slices);
    expect_whole(index, ChunkForm::rows);
  }
}

// A bias is whole in each chunk of the sum over k, which adds it as often.
bool is_a_sum_with_a_bias(const AppliedOp& applied, char index) {
  return applied.op->name() == std::string("linear") && applied.operands.size() == 3 &&
         index == 'k';
}

TEST_P(NotationOf, ChunksAlongAnyOtherIndexMakeUpTheWholeForwardAndBackward) {
  for (const char index : other_separable_indices(applied.notation)) {
    if (is_a_sum_with_a_bias(applied, index)) continue;
    expect_whole(index, ChunkForm::slices);
  }
}

TEST_P(NotationOf, AnElementMattersOnlyWhereItsSeparableIndicesAgree) {
  for (const Precision& precision : precisions) {
    const Influences found = find_influences(in_type(applied, precision.type));
    EXPECT_EQ(found.forbidden, "") << name(precision.type);
    for (size_t i = 0; i < found.matters.size(); ++i) {
      EXPECT_TRUE(found.matters[i]) << "nothing depends on input " << i;
    }
  }
}

}  // namespace
}  // namespace spool::testing
