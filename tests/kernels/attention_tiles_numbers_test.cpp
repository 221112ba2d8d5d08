// Bits of attention on the emulated tile unit: what they do not depend on, and infinity and NaN.

#include "tests/kernels/attention_reference.h"
#include "tests/kernels/tile_unit_testing.h"

namespace spool::testing {
namespace {

struct TileAttentionNumbers : ::testing::Test {
  WithTileUnit unit{TileUnit::emulated};
  CpuStream stream{attention_budget, 2};
};

struct AttentionResults {
  Values y, lse, dqkv;
};

AttentionResults results_of(const AttentionPass& pass, const AttentionCase& c) {
  pass.forward(c, c.scale());
  pass.backward(c, c.scale(), pass.dqkv);
  return {values(pass.y), values(pass.lse), values(pass.dqkv)};
}

// The b-th of B equal parts.
Values part(const Values& all, int64_t b, int64_t B) {
  const auto size = static_cast<int64_t>(all.size()) / B;
  return {all.begin() + b * size, all.begin() + (b + 1) * size};
}

TEST(TileAttentionOfAUnit, HasTheBitsOfThePlainTwin) {
  const AttentionCase c = {1, 300, 2, 1, 64};
  std::vector<AttentionResults> all;
  for (const TileUnit tile_unit : tile_units()) {
    const WithTileUnit unit(tile_unit);
    CpuStream stream(attention_budget, 2);
    all.push_back(results_of(AttentionPass(c, DType::bf16, stream), c));
    EXPECT_EQ(all.back().y, all.front().y);
    EXPECT_EQ(all.back().lse, all.front().lse);
    EXPECT_EQ(all.back().dqkv, all.front().dqkv);
  }
}

TEST_F(TileAttentionNumbers, ARowOfABatchHasTheBitsThatItHasAlone) {
  const AttentionCase whole = {3, 140, 2, 1, 32}, one = {1, 140, 2, 1, 32};
  const AttentionPass pass(whole, DType::bf16, stream);
  const AttentionResults all = results_of(pass, whole);
  for (int64_t b = 0; b < whole.B; ++b) {
    AttentionPass alone(one, DType::bf16, stream);
    const Range rows{b, b + 1};
    alone.qkv = pass.qkv.slice(rows);
    alone.dy = pass.dy.slice(rows);
    const AttentionResults r = results_of(alone, one);
    EXPECT_EQ(r.y, part(all.y, b, whole.B));
    EXPECT_EQ(r.lse, part(all.lse, b, whole.B));
    EXPECT_EQ(r.dqkv, part(all.dqkv, b, whole.B));
  }
}

// Tokens that a text goes on with change no bit of those before: neither the rows that a step is
// filled up with nor the tiles of keys.
TEST_F(TileAttentionNumbers, ATokensBitsDoNotDependOnLaterTokens) {
  const AttentionCase whole = {1, 300, 1, 1, 32};
  const AttentionPass pass(whole, DType::bf16, stream);
  const AttentionResults all = results_of(pass, whole);
  for (const int64_t T : {1, 33, 64, 257}) {
    const AttentionCase c = {1, T, 1, 1, 32};
    AttentionPass begin(c, DType::bf16, stream);
    const Values y = results_of(begin, c).y;
    EXPECT_EQ(y, Values(all.y.begin(), all.y.begin() + T * c.D)) << T;
  }
}

// What row t of qkv (or dy) is replaced by, from head `head` on.
struct BadNumber {
  int64_t t, head;
  bool in_dy;
  float value;
};

std::vector<BadNumber> bad_numbers(const AttentionCase& c, int64_t t) {
  std::vector<BadNumber> all;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {infinity, -infinity, std::nanf("")}) {
    for (const int64_t head : {int64_t{0}, c.H, c.H + c.Hkv}) all.push_back({t, head, false, x});
    all.push_back({t, 0, true, x});
  }
  return all;
}

AttentionPass pass_with(const BadNumber& bad, const AttentionCase& c, CpuStream& stream) {
  AttentionPass pass(c, DType::bf16, stream);
  const Tensor& changed = bad.in_dy ? pass.dy : pass.qkv;
  const int64_t row = bad.in_dy ? c.H * c.D : c.row();
  std::vector<bf16> numbers;
  for (const double x : values(changed)) numbers.emplace_back(static_cast<float>(x));
  numbers[static_cast<size_t>(bad.t * row + bad.head * c.D + 3)] = bf16(bad.value);
  write<bf16>(changed, numbers);
  return pass;
}

std::vector<bool> finite(const Values& all) {
  std::vector<bool> is;
  for (const double x : all) is.push_back(std::isfinite(x));
  return is;
}

TEST_F(TileAttentionNumbers, InfinityAndNaNComeThroughAsByTheFormula) {
  const std::pair<AttentionCase, int64_t> cases[] = {
      {{1, 70, 2, 1, 32}, 40},
      {{1, 50, 2, 1, 32, Mask::none}, 40},
      {{1, 70, 1, 1, 32, Mask::causal, AttentionCase::any_first}, 40},
      {{1, 300, 1, 1, 32}, 10},
      {{1, 300, 1, 1, 32, Mask::none}, 280}};  // two tiles of keys
  for (const auto& [c, row] : cases) {
    for (const BadNumber& bad : bad_numbers(c, row)) {
      const AttentionPass pass = pass_with(bad, c, stream);
      const AttentionResults r = results_of(pass, c);
      const AttentionReference expected =
          attention_reference(c, c.scale(), values(pass.qkv), values(pass.dy));
      const std::string where =
          sentence("head ", bad.head, bad.in_dy ? " of dy, " : ", ", bad.value);
      EXPECT_EQ(finite(r.y), finite(expected.y)) << c << ' ' << where;
      EXPECT_EQ(finite(r.lse), finite(expected.lse)) << c << ' ' << where;
      EXPECT_EQ(finite(r.dqkv), finite(expected.dqkv)) << c << ' ' << where;
    }
  }
}

// Texts of 44 tokens, whose bounds lie within steps: what is infinite in one is hidden from the
// others, which keep every bit.
TEST_F(TileAttentionNumbers, WhatIsHiddenChangesNoBitEvenIfInfinite) {
  const AttentionCase c = {1, 132, 2, 1, 32, Mask::causal, 44};
  const AttentionResults good = results_of(AttentionPass(c, DType::bf16, stream), c);
  const auto rows = [&](const Values& all, int64_t first, int64_t end) {
    const auto size = static_cast<int64_t>(all.size()) / c.T;
    return Values(all.begin() + first * size, all.begin() + end * size);
  };
  for (const BadNumber& bad : bad_numbers(c, 60)) {
    const AttentionResults r = results_of(pass_with(bad, c, stream), c);
    for (const auto& [first, end] : {std::pair(0, 44), std::pair(88, 132)}) {
      EXPECT_EQ(rows(r.y, first, end), rows(good.y, first, end)) << bad.head << ' ' << bad.value;
      EXPECT_EQ(rows(r.dqkv, first, end), rows(good.dqkv, first, end))
          << bad.head << ' ' << bad.value;
    }
    EXPECT_EQ(rows(r.y, 44, 60), rows(good.y, 44, 60)) << bad.head << ' ' << bad.value;
    EXPECT_FALSE(std::ranges::all_of(finite(r.dqkv), std::identity()));
  }
}

}  // namespace
}  // namespace spool::testing
