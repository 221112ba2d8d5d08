// Attention in bf16 on the tile unit, emulated, against the formulas of its header in f64.

#include "spool/kernels/cpu/attention_tile_unit.h"
#include "tests/kernels/attention_reference.h"
#include "tests/kernels/tile_unit_testing.h"

namespace spool::testing {
namespace {

struct TileAttention : ::testing::Test {
  WithTileUnit unit{TileUnit::emulated};
};

// A step has 32 queries or keys; tiles have 128 and 256.
const AttentionCase tile_cases[] = {
    {1, 1, 1, 1, 32},    {2, 31, 2, 1, 64},  {1, 32, 3, 3, 96},  {2, 33, 4, 2, 32},
    {1, 100, 2, 2, 128}, {1, 129, 2, 1, 32}, {1, 257, 2, 1, 64}, {1, 290, 1, 1, 96},
};
// Packed texts of fewer tokens than a step, of more than a tile, and neither.
const AttentionCase packed_tile_cases[] = {
    {2, 97, 4, 2, 32, Mask::causal, 11},
    {2, 270, 2, 1, 64, Mask::causal, 130},
    {1, 600, 1, 1, 32, Mask::causal, 290},
    {2, 150, 2, 1, 32, Mask::causal, AttentionCase::any_first},
};

void expect_reference_on_tiles(const AttentionCase& c, double scale) {
  CpuStream stream(attention_budget, 2);
  const AttentionPass pass(c, DType::bf16, stream);
  ASSERT_TRUE(
      cpu::attention_fits_tile_unit({pass.qkv, pass.y, c.heads()}, DType::bf16, stream.cpu()));
  pass.forward(c, scale);
  pass.backward(c, scale, pass.dqkv);
  const AttentionReference expected =
      attention_reference(c, scale, values(pass.qkv), values(pass.dy));
  EXPECT_LE(difference(values(pass.y), expected.y), 5e-3) << c;
  EXPECT_LE(difference(values(pass.lse), expected.lse), 1e-5) << c;
  EXPECT_LE(difference(values(pass.dqkv), expected.dqkv), 5e-3) << c;
}

TEST(TileAttentionOfAUnit, FollowsItsFormula) {
  for (const TileUnit tile_unit : tile_units()) {
    const WithTileUnit unit(tile_unit);
    for (const AttentionCase& c : tile_cases) {
      for (const Mask mask : enumerators<Mask>()) {
        expect_reference_on_tiles(c.with(mask), c.scale());
      }
    }
    for (const AttentionCase& c : packed_tile_cases) expect_reference_on_tiles(c, c.scale());
  }
}

TEST_F(TileAttention, FollowsItsFormulaForAnyScale) {
  const AttentionCase c = {1, 70, 2, 1, 32};
  for (const double scale : {-0.3, 0.0, 1.5}) {
    for (const Mask mask : enumerators<Mask>()) expect_reference_on_tiles(c.with(mask), scale);
  }
}

// By shape, type and architecture alone, so that a rehearsal asks for the workspace of a run.
TEST_F(TileAttention, TakesHeadsOfWholeStepsUpTo128) {
  CpuStream stream(attention_budget, 2);
  for (const int64_t D : {16, 32, 48, 64, 96, 128, 160}) {
    const AttentionCase c = {1, 3, 1, 1, D};
    const AttentionPass pass(c, DType::bf16, stream);
    const AttentionExtents e(pass.qkv, pass.y, c.heads());
    CpuArchitecture cpu{.threads = 2, .bf16_products = Bf16Products::tiles};
    EXPECT_EQ(cpu::attention_fits_tile_unit(e, DType::bf16, cpu), D % 32 == 0 && D <= 128) << D;
    EXPECT_FALSE(cpu::attention_fits_tile_unit(e, DType::f32, cpu));
    cpu.bf16_products = Bf16Products::pairs;
    EXPECT_FALSE(cpu::attention_fits_tile_unit(e, DType::bf16, cpu));
  }
}

TEST_F(TileAttention, AddsToAGradientThatSaysSoAndWritesF32) {
  CpuStream stream(attention_budget, 2);
  for (const AttentionCase& c : {AttentionCase{2, 45, 4, 2, 32}, AttentionCase{1, 270, 1, 1, 32},
                                 AttentionCase{1, 270, 2, 1, 32, Mask::none}}) {
    const AttentionPass pass(c, DType::bf16, stream);
    pass.forward(c, c.scale());
    pass.backward(c, c.scale(), pass.dqkv);
    const Tensor f32({c.qkv(), DType::f32}, stream);
    pass.backward(c, c.scale(), f32);
    const Values precise = values(f32), rounded = values(pass.dqkv);
    for (size_t i = 0; i < precise.size(); ++i) {
      ASSERT_EQ(static_cast<float>(bf16(static_cast<float>(precise[i]))), rounded[i]) << i;
    }
    for (const DType type : {DType::bf16, DType::f32}) {
      const Tensor sum = normal(c.qkv(), type, stream, 3);
      Values expected = values(sum);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += precise[i];
      pass.backward(c, c.scale(), {sum, true});
      EXPECT_LE(difference(values(sum), expected), type == DType::bf16 ? 5e-3 : 1e-6) << c;
    }
  }
}

// Scores of both signs beyond 1e4, in whole numbers that bf16 holds exactly.
TEST_F(TileAttention, LargeScoresDoNotOverflow) {
  CpuStream stream(attention_budget, 2);
  const AttentionCase c = {1, 100, 2, 1, 32};
  for (const float shift : {0.0F, 32.0F, -32.0F}) {
    const AttentionPass pass(c, DType::bf16, stream);
    std::vector<bf16> qkv;
    for (const double x : values(pass.qkv)) qkv.emplace_back(static_cast<float>(std::round(8 * x)));
    for (size_t i = 0; i < qkv.size(); ++i) {
      const auto head = static_cast<int64_t>(i) % c.row() / c.D;
      const float more = head < 2 ? 32 : head == 2 ? shift : 0;
      qkv[i] = bf16(static_cast<float>(qkv[i]) + more);
    }
    write<bf16>(pass.qkv, qkv);
    pass.forward(c, 1);
    pass.backward(c, 1, pass.dqkv);
    const AttentionReference expected =
        attention_reference(c, 1, values(pass.qkv), values(pass.dy));
    EXPECT_GE(shift == 0 ? 1e4 : std::fabs(expected.lse[90]), 1e4);
    EXPECT_LE(difference(values(pass.y), expected.y), 5e-3);
    EXPECT_LE(difference(values(pass.lse), expected.lse), 1e-6);
    EXPECT_LE(difference(values(pass.dqkv), expected.dqkv), 1e-2);
  }
}

TEST_F(TileAttention, OnlySumsOverKeysGrowWithTheSequence) {
  const auto workspaces = [](int64_t T, DType gradient) {
    CpuStream stream(attention_budget, 3);
    const AttentionCase c = {1, T, 2, 1, 32};
    AttentionPass pass(c, DType::bf16, stream);
    const Tensor dqkv({c.qkv(), gradient}, stream);
    return std::pair(workspace_bytes(pass.forward_kernel(c, 1), stream.architecture()),
                     workspace_bytes(pass.backward_kernel(c, 1, dqkv), stream.architecture()));
  };
  for (const DType gradient : {DType::bf16, DType::f32}) {
    const auto half = workspaces(2048, gradient), whole = workspaces(4096, gradient);
    EXPECT_EQ(whole.first, half.first);
    const size_t sums = 2048u * 2 * (gradient == DType::bf16 ? 32 + 1 : 1) * sizeof(float);
    EXPECT_LE(whole.second - half.second, sums + 2 * 2048 / 128 * sizeof(int32_t));
    EXPECT_LE(workspaces(1, gradient).first, half.first / 4);
  }
}

}  // namespace
}  // namespace spool::testing
