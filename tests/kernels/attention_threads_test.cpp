// runs: threads
// Attention on the cpu, with several threads.

#include "tests/kernels/attention_testing.h"
#include "tests/kernels/tile_unit_testing.h"

namespace spool::testing {
namespace {

using Values = std::vector<double>;

void expect_same_bits(const AttentionCase& c, DType dtype, DType gradient) {
  std::vector<Values> all;
  const std::vector<int> few{1, 3}, many{1, 2, 3, 5, 5, 5};
  for (const int threads : finds_races() ? few : many) {
    CpuStream stream(attention_budget, threads);
    const AttentionPass pass(c, dtype, stream);
    pass.forward(c, c.scale());
    const Tensor dqkv = normal(c.qkv(), gradient, stream, 3);
    pass.backward(c, c.scale(), Grad(dqkv, gradient != dtype));
    const Values y = values(pass.y), lse = values(pass.lse);
    all.push_back(values(dqkv));
    all.back().insert(all.back().end(), y.begin(), y.end());
    all.back().insert(all.back().end(), lse.begin(), lse.end());
  }
  for (const Values& other : all) EXPECT_EQ(other, all.front()) << c << ' ' << name(dtype);
}

TEST(AttentionThreads, BitsDoNotDependOnTheNumberOfThreads) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const AttentionCase& c :
         {AttentionCase{1, 500, 4, 2, 16}, AttentionCase{3, 230, 3, 3, 8},
          AttentionCase{1, 700, 1, 1, 8}, AttentionCase{1, 500, 4, 2, 16, Mask::none},
          AttentionCase{3, 230, 3, 3, 8, Mask::none}}) {
      expect_same_bits(c, dtype, dtype);
    }
  }
}

TEST(AttentionThreads, BitsOfTheTileUnitDoNotEither) {
  const WithTileUnit unit(TileUnit::emulated);
  for (const AttentionCase& c : {AttentionCase{2, 300, 2, 1, 32}, AttentionCase{1, 560, 1, 1, 32},
                                 AttentionCase{1, 300, 2, 2, 32, Mask::none}}) {
    for (const DType gradient : {DType::bf16, DType::f32}) {
      expect_same_bits(c, DType::bf16, gradient);
    }
  }
}

}  // namespace
}  // namespace spool::testing
