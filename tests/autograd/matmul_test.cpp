// runs: numbers
// What matmul saves, what it refuses, and forms of it that the table of samples does not have.

#include <set>

#include "spool/autograd/checks/check_op.h"
#include "spool/autograd/fingerprint.h"
#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class MatmulOp : public ::testing::Test {
 protected:
  Tensor tensor(const Shape& shape, DType type = DType::f32) {
    return normal(shape, type, stream_, 1);
  }
  std::string error_by(const Tensor& a, const Tensor& b, Transposed transposed = {}) {
    Tape tape(stream_);
    const Var x = tape.input(a), y = tape.input(b);
    return error_of([&] { matmul(x, y, transposed); });
  }

  CpuStream stream_{size_t{64} << 20, 1};
};

TEST_F(MatmulOp, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_by(tensor({2, 3, 4}), tensor({2, 5, 6})),
            "matmul: f32 (2, 3, 4) by f32 (2, 5, 6); a second factor of f32 (2, 4, 6) or f32 (4, 6)"
            " would fit");
  EXPECT_EQ(error_by(tensor({2, 3, 4}), tensor({3, 4, 6})),
            "matmul: f32 (2, 3, 4) by f32 (3, 4, 6); a second factor of f32 (2, 4, 6) or f32 (4, 6)"
            " would fit");
  EXPECT_EQ(error_by(tensor({3, 4}), tensor({3, 5}), {.b = true}),
            "matmul: f32 (3, 4) by f32 (3, 5) transposed; a second factor of f32 (3, 4) would fit");
  EXPECT_EQ(error_by(tensor({3, 4}), tensor({4, 5}), {.a = true}),
            "matmul: f32 (3, 4) transposed by f32 (4, 5); a second factor of f32 (3, 5) would fit");
  EXPECT_EQ(error_by(tensor({3, 4}), tensor({4, 5}, DType::bf16)),
            "matmul: f32 (3, 4) by bf16 (4, 5); a second factor of f32 (4, 5) would fit");
  EXPECT_EQ(error_by(tensor({3, 4}), tensor({4})),
            "matmul: f32 (3, 4) by f32 (4); matrices have 2 dimensions or more");
  EXPECT_EQ(error_by(tensor({3, 4}), tensor({2, 4, 5})),
            "matmul: f32 (3, 4) by f32 (2, 4, 5); a second factor of f32 (4, 5) would fit");
}

TEST_F(MatmulOp, SavesAFactorOnlyForTheGradientOfTheOther) {
  for (const bool a_needs : {false, true}) {
    for (const bool b_needs : {false, true}) {
      Tape tape(stream_);
      const Var a = tape.input(tensor({2, 3, 4}), a_needs);
      const Var b = tape.input(tensor({2, 4, 5}), b_needs);
      matmul(a, b);
      Needs needs;
      if (a_needs) needs.set(0);
      if (b_needs) needs.set(1);
      const Slots saved = tape.nodes().back().op->saves(needs);
      std::set<int> inputs;
      for (const Slot& s : saved) inputs.insert(s.index);
      EXPECT_EQ(inputs.contains(0), b_needs);
      EXPECT_EQ(inputs.contains(1), a_needs);
    }
  }
}

TEST_F(MatmulOp, TransposesBothMatrices) {
  const OpSample sample{.name = "matmul_transposed_a_transposed_b",
                        .inputs = {{.shape = {5, 3}}, {.shape = {4, 5}}},
                        .apply = [](const std::vector<Operand>& x) {
                          return std::vector{matmul(x[0], x[1], {.a = true, .b = true})};
                        }};
  for (const std::string& failure : check_op(sample)) ADD_FAILURE() << failure;
}

// The gradient of an operand that is both factors is the sum of theirs.
TEST_F(MatmulOp, TakesTheSameOperandTwice) {
  const Tensor x = tensor({2, 3, 4}, DType::f64), dy = normal({2, 3, 3}, DType::f64, stream_, 2);
  Tape once(stream_), twice(stream_);
  const Var both = once.input(x, true), a = twice.input(x, true), b = twice.input(x, true);
  once.backward({{matmul(both, both, {.b = true}), dy}});
  twice.backward({{matmul(a, b, {.b = true}), dy}});
  std::vector<double> sum = values(twice.grad(a));
  const std::vector<double> other = values(twice.grad(b));
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  EXPECT_LT(difference(values(once.grad(both)), sum), 1e-14);
}

TEST_F(MatmulOp, MayBeEmpty) {
  for (const auto& [M, K, N] : {std::array<int64_t, 3>{0, 4, 5}, {3, 0, 5}, {3, 4, 0}}) {
    for (const bool transposed : {false, true}) {
      for (const bool shared : {false, true}) {
        Tape tape(stream_);
        const Var a = tape.input(tensor(transposed ? Shape{2, K, M} : Shape{2, M, K}), true);
        const Var b = tape.input(tensor(shared ? Shape{K, N} : Shape{2, K, N}), true);
        const Var y = matmul(a, b, {.a = transposed});
        EXPECT_EQ(y.shape(), (Shape{2, M, N}));
        for (const double x : values(y.tensor())) EXPECT_EQ(x, 0);
        tape.backward({{y, tensor({2, M, N})}});
        EXPECT_EQ(values(tape.grad(a)), std::vector<double>(static_cast<size_t>(2 * M * K)));
        for (const double x : values(tape.grad(b))) EXPECT_EQ(x, 0);
      }
    }
  }
}

TEST_F(MatmulOp, TranspositionsAreInTheFingerprint) {
  std::set<uint64_t> all;
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      Tape tape(stream_);
      const Var x = tape.input(tensor({3, 3}));
      matmul(x, x, {a, b});
      all.insert(fingerprints(tape.program()).back());
    }
  }
  EXPECT_EQ(all.size(), 4u);
}

// A causal mask is not named, so that plans made before there was another one stay valid.
TEST(AttentionOp, SaysItsMaskAndOrderInTheFingerprintUnlessTheyAreUsual) {
  CpuStream stream(size_t{64} << 20, 1);
  const Tensor qkv = normal({1, 4, 6}, DType::f32, stream, 1);
  const auto words = [&](Mask mask, SumOrder order = SumOrder::fixed) {
    Tape tape(stream);
    attention(tape.input(qkv), {.query = 1, .key = 1}, mask, order);
    return tape.nodes().back().op->attributes();
  };
  EXPECT_EQ(words(Mask::causal), "query heads 1, key heads 1");
  EXPECT_EQ(words(Mask::none), "query heads 1, key heads 1, mask none");
  EXPECT_EQ(words(Mask::causal, SumOrder::any), "query heads 1, key heads 1, sum order any");
}

}  // namespace
}  // namespace spool::testing
