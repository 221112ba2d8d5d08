// Attention on the cpu against the formulas of its header in f64.

#include "spool/kernels/attention.h"

#include <limits>

#include "spool/runtime/meta/stream.h"
#include "tests/kernels/attention_reference.h"

namespace spool::testing {
namespace {

// A tile has 96 rows, a block 6, a vector 4 to 16: on, below and above each of these.
const AttentionCase cases[] = {
    {1, 1, 1, 1, 1},   {2, 1, 3, 1, 5},    {1, 5, 2, 2, 3},     {3, 6, 2, 1, 16},
    {2, 17, 2, 2, 24}, {1, 65, 3, 3, 64},  {1, 95, 1, 1, 17},   {1, 96, 2, 2, 32},
    {2, 97, 4, 2, 20}, {1, 128, 6, 2, 80}, {1, 192, 4, 1, 128}, {1, 193, 2, 2, 48},
    {2, 300, 4, 2, 8}, {1, 389, 5, 5, 1},
};

// Packed texts of fewer tokens than a tile, of more, and neither.
const AttentionCase packed_cases[] = {
    {2, 97, 4, 2, 20, Mask::causal, 11},
    {2, 400, 2, 1, 16, Mask::causal, 130},
    {1, 300, 2, 2, 5, Mask::causal, 192},
    {2, 200, 2, 1, 8, Mask::causal, AttentionCase::any_first},
};

void expect_reference(const AttentionCase& c, DType dtype, double tolerance) {
  CpuStream stream(attention_budget, 2);
  const AttentionPass pass(c, dtype, stream);
  pass.forward(c, c.scale());
  pass.backward(c, c.scale(), pass.dqkv);
  const AttentionReference expected =
      attention_reference(c, c.scale(), values(pass.qkv), values(pass.dy));
  EXPECT_LE(difference(values(pass.y), expected.y), tolerance) << c;
  EXPECT_LE(difference(values(pass.lse), expected.lse), tolerance) << c;
  EXPECT_LE(difference(values(pass.dqkv), expected.dqkv), tolerance) << c;
}

void expect_reference(DType dtype, double tolerance) {
  for (const AttentionCase& c : cases) {
    for (const Mask mask : enumerators<Mask>()) expect_reference(c.with(mask), dtype, tolerance);
  }
  for (const AttentionCase& c : packed_cases) expect_reference(c, dtype, tolerance);
}

TEST(Attention, FollowsItsFormulaInF64) { expect_reference(DType::f64, 1e-12); }
TEST(Attention, FollowsItsFormulaInF32) { expect_reference(DType::f32, 2e-6); }
TEST(Attention, FollowsItsFormulaInBf16) { expect_reference(DType::bf16, 5e-3); }

Values operator+(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

TEST(Attention, AddsToAGradientThatSaysSo) {
  CpuStream stream(attention_budget, 2);
  for (const Mask mask : enumerators<Mask>()) {
    const AttentionCase c = {2, 200, 4, 2, 24, mask};
    for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      const AttentionPass pass(c, dtype, stream);
      pass.forward(c, c.scale());
      pass.backward(c, c.scale(), pass.dqkv);
      for (DType type : {dtype, accumulator(dtype)}) {
        const Tensor sum = normal(c.qkv(), type, stream, 3);
        const Values expected = values(sum) + values(pass.dqkv);
        pass.backward(c, c.scale(), {sum, true});
        EXPECT_LE(difference(values(sum), expected), dtype == DType::bf16 ? 5e-3 : 1e-6) << c;
      }
    }
  }
}

TEST(Attention, WritesAGradientMorePreciseThanItsArguments) {
  CpuStream stream(attention_budget, 2);
  const AttentionCase c = {2, 200, 4, 2, 24};
  const AttentionPass pass(c, DType::bf16, stream);
  pass.forward(c, c.scale());
  const Tensor f32({c.qkv(), DType::f32}, stream);
  pass.backward(c, c.scale(), f32);
  pass.backward(c, c.scale(), pass.dqkv);
  const Values precise = values(f32), rounded = values(pass.dqkv);
  for (size_t i = 0; i < precise.size(); ++i) {
    ASSERT_EQ(static_cast<float>(bf16(static_cast<float>(precise[i]))), rounded[i]) << i;
  }
}

TEST(Attention, WorkspaceIsLinearInTheSequence) {
  const auto workspaces = [](int64_t T, DType dtype) {
    CpuStream stream(attention_budget, 2);
    const AttentionCase c = {1, T, 2, 1, 16};
    const AttentionPass pass(c, dtype, stream);
    const AttentionForward forward{
        .y = pass.y, .lse = pass.lse, .qkv = pass.qkv, .heads = c.heads()};
    const AttentionBackward backward{.dqkv = pass.dqkv,
                                     .dy = pass.dy,
                                     .qkv = pass.qkv,
                                     .y = pass.y,
                                     .lse = pass.lse,
                                     .heads = c.heads()};
    return std::pair(workspace_bytes(forward, stream.architecture()),
                     workspace_bytes(backward, stream.architecture()));
  };
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const auto half = workspaces(2048, dtype), whole = workspaces(4096, dtype);
    EXPECT_EQ(whole.first, half.first);
    EXPECT_LE(whole.second, 2 * half.second);
    EXPECT_LE(whole.second - half.second, 2048u * 2 * (16 + 2) * size_of(accumulator(dtype)));
  }
}

TEST(Attention, NeedsNoMoreMemoryThanItDeclares) {
  const AttentionCase c = {1, 4096, 1, 1, 4};
  const auto peak = [&](size_t bytes) {
    CpuStream stream(bytes, 2);
    const Tensor qkv = normal(c.qkv(), DType::f32, stream, 1);
    const Tensor y({c.y()}, stream), lse({{c.B, c.H, c.T}}, stream), dqkv({c.qkv()}, stream);
    launch(AttentionForward{.y = y, .lse = lse, .qkv = qkv, .heads = c.heads()}, stream);
    launch(
        AttentionBackward{
            .dqkv = dqkv, .dy = y, .qkv = qkv, .y = y, .lse = lse, .heads = c.heads()},
        stream);
    stream.synchronize();
    return stream.memory().peak;
  };
  const size_t enough = peak(attention_budget);
  EXPECT_LE(enough, 1u << 20);  // T x T alone would be 64 MiB
  EXPECT_EQ(peak(enough), enough);
}

// Scores of both signs beyond 1e4.  Whole numbers, so that f32 holds them exactly.
TEST(Attention, LargeScoresDoNotOverflow) {
  CpuStream stream(attention_budget, 2);
  const AttentionCase c = {1, 200, 2, 1, 8};
  for (double shift : {0.0, 200.0, -200.0}) {
    const AttentionPass pass(c, DType::f32, stream);
    Values qkv = values(pass.qkv);
    for (double& x : qkv) x = std::round(60 * x);
    for (size_t t = 0; t < qkv.size(); t += static_cast<size_t>(c.row())) {
      for (size_t head : {0, 1}) qkv[t + head * static_cast<size_t>(c.D)] += 200;
      qkv[t + 2 * static_cast<size_t>(c.D)] += shift;
    }
    write<float>(pass.qkv, std::vector<float>(qkv.begin(), qkv.end()));
    pass.forward(c, 1);
    pass.backward(c, 1, pass.dqkv);
    const AttentionReference expected = attention_reference(c, 1, qkv, values(pass.dy));
    ASSERT_GE(std::fabs(expected.lse[100]), 1e4);
    EXPECT_LE(difference(values(pass.y), expected.y), 1e-6);
    EXPECT_LE(difference(values(pass.lse), expected.lse), 1e-6);
    EXPECT_LE(difference(values(pass.dqkv), expected.dqkv), 5e-3);
  }
}

// Query heads 0 and 1 share a key head; 2 and 3 another.
TEST(Attention, PassesOnNaNAndInfinity) {
  CpuStream stream(attention_budget, 2);
  const AttentionCase c = {1, 120, 4, 2, 8};
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const AttentionPass pass(c, DType::f64, stream);
    Values qkv = values(pass.qkv);
    const int64_t place = 50 * c.row() + (c.H + 0) * c.D;
    qkv[static_cast<size_t>(place)] = bad;
    write<double>(pass.qkv, qkv);
    pass.forward(c, c.scale());
    pass.backward(c, c.scale(), pass.dqkv);
    const Values y = values(pass.y), dqkv = values(pass.dqkv);
    const auto finite = [&](int64_t t, int64_t h) {
      return std::isfinite(y[static_cast<size_t>((t * c.H + h) * c.D)]);
    };
    EXPECT_FALSE(finite(50, 0) && finite(51, 0) && finite(119, 0));
    EXPECT_TRUE(finite(40, 0) && finite(50, 2) && finite(119, 3));
    EXPECT_FALSE(std::isfinite(dqkv[static_cast<size_t>(place)]));
  }
}

TEST(Attention, CountsThePairsThatItsMaskLeaves) {
  MetaStream stream(Machine{});
  const Tensor qkv({{2, 100, 3 * 64}}, stream), y({{2, 100, 64}}, stream),
      lse({{2, 4, 100}}, stream);
  const Heads heads = {.query = 4, .key = 4};
  AttentionForward forward{.y = y, .lse = lse, .qkv = qkv, .heads = heads};
  AttentionBackward backward{.dqkv = qkv, .dy = y, .qkv = qkv, .y = y, .lse = lse, .heads = heads};
  for (const Mask mask : enumerators<Mask>()) {
    forward.mask = backward.mask = mask;
    const Cost ahead = forward.cost(), back = backward.cost();
    const double pairs = mask == Mask::causal ? 2 * 4 * 100 * 101 / 2 : 2 * 4 * 100 * 100;
    EXPECT_GE(ahead.flops, pairs * 4 * 16);
    EXPECT_LE(ahead.flops, pairs * (4 * 16 + 32));
    EXPECT_GE(back.flops, pairs * 10 * 16);
    EXPECT_LE(back.flops, pairs * (10 * 16 + 32));
    EXPECT_EQ(ahead.bytes, static_cast<double>(y.nbytes() + lse.nbytes() + qkv.nbytes()));
    EXPECT_EQ(back.bytes, static_cast<double>(2 * y.nbytes() + lse.nbytes() + 2 * qkv.nbytes()));
  }
}

TEST(Attention, RefusesHeadsThatDoNotFitItsTensors) {
  CpuStream stream(attention_budget, 1);
  const Tensor qkv({{1, 4, 3 * 8}}, stream), y({{1, 4, 8}}, stream), lse({{1, 2, 4}}, stream);
  for (Heads heads : {Heads{3, 2}, Heads{2, 1}, Heads{0, 0}}) {
    expect_error(ErrorKind::invalid, {"attention", "heads"}, [&] {
      launch(AttentionForward{.y = y, .lse = lse, .qkv = qkv, .heads = heads}, stream);
    });
  }
}

TEST(Attention, RefusesAFirstOfAnotherShapeTypeOrMask) {
  CpuStream stream(attention_budget, 1);
  const Tensor qkv({{2, 4, 3 * 8}}, stream), y({{2, 4, 8}}, stream), lse({{2, 1, 4}}, stream);
  const Tensor right({{2, 4}, DType::i32}, stream), wide({{2, 5}, DType::i32}, stream),
      f32({{2, 4}}, stream), dqkv(qkv.spec(), stream);
  AttentionForward forward{.y = y, .lse = lse, .qkv = qkv, .first = right};
  AttentionBackward backward{.dqkv = dqkv, .dy = y, .qkv = qkv, .y = y, .lse = lse, .first = right};
  const double bytes = forward.cost().bytes;
  forward.first = {};
  EXPECT_EQ(bytes, forward.cost().bytes + static_cast<double>(right.nbytes()));
  const auto expect_refused = [&](const Tensor& first, Mask mask) {
    forward.first = backward.first = first;
    forward.mask = backward.mask = mask;
    expect_error(ErrorKind::invalid, {"attention", "first"}, [&] { forward.check_arguments(); });
    expect_error(ErrorKind::invalid, {"attention", "first"}, [&] { backward.check_arguments(); });
  };
  expect_refused(wide, Mask::causal);
  expect_refused(f32, Mask::causal);
  expect_refused(right, Mask::none);
}

}  // namespace
}  // namespace spool::testing
