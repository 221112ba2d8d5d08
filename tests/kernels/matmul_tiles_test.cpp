// runs: threads
// Products in bf16 on a tile unit: each element is a chain of steps of 32 terms, bit for bit.

#include <cmath>

#include "tests/kernels/batched_matmul_testing.h"
#include "tests/kernels/matmul_testing.h"
#include "tests/kernels/tile_unit_testing.h"

namespace spool::testing {
namespace {

constexpr MatmulTypes tile_types[] = {{DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

// The definition of TDPBF16PS, over all terms: pairs of terms, even and odd ones apart.
float chain(const Numbers& a, const Numbers& b, const MatmulExtent& e, int64_t m, int64_t n) {
  float sum = 0;
  for (int64_t begin = 0; begin < e.K; begin += 32) {
    float parts[2] = {0, 0};
    for (int64_t k = begin; k < std::min(begin + 32, e.K); ++k) {
      const float x = flushed(static_cast<float>(at(a, m * e.K + k)));
      const float y = flushed(static_cast<float>(at(b, k * e.N + n)));
      parts[k % 2] = flushed(std::fma(x, y, parts[k % 2]));
    }
    sum = flushed(sum + flushed(parts[0] + parts[1]));
  }
  return sum;
}

// All sums by the definition, with what the form adds, in the type of the result.
Numbers chains(const MatmulProblem& p, const Numbers& sums, const MatmulForm& f, DType out) {
  Numbers all;
  for (size_t i = 0; i < sums.size(); ++i) {
    auto sum = static_cast<float>(f.alpha * sums[i]);
    if (f.bias) sum += static_cast<float>(p.bias[i % p.bias.size()]);
    if (f.accumulate) sum += static_cast<float>(p.before[i]);
    all.push_back(out == DType::bf16 ? static_cast<float>(bf16(flushed(sum))) : sum);
  }
  return all;
}

Numbers chains(const MatmulProblem& p) {
  Numbers sums;
  for (int64_t m = 0; m < p.extent.M; ++m) {
    for (int64_t n = 0; n < p.extent.N; ++n) sums.push_back(chain(p.a, p.b, p.extent, m, n));
  }
  return sums;
}

Numbers product_of(const MatmulProblem& p, const MatmulForm& f, const MatmulTypes& t,
                   CpuStream& stream) {
  leave_nan_in(stream, 64 << 20);
  return values(p.run(f, t, by_launch, stream));
}

void expect_chains(const MatmulExtent& e, const std::vector<int>& forms) {
  const MatmulProblem p(e);
  const Numbers sums = chains(p);
  for (const TileUnit unit : tile_units()) {
    const WithTileUnit with(unit);
    CpuStream stream(matmul_budget, 2);
    for (const MatmulTypes& t : tile_types) {
      for (const int form : forms) {
        const MatmulForm f = matmul_form(form);
        EXPECT_EQ(product_of(p, f, t, stream), chains(p, sums, f, t.out))
            << describe(p, f, t) << ", unit " << name(unit);
      }
    }
  }
}

TEST(MatmulTiles, EveryFormIsAChainOf32Terms) {
  std::vector<int> all;
  for (int i = 0; i < 16; i += finds_races() ? 5 : 1) all.push_back(i);
  for (const MatmulExtent& e : {MatmulExtent{1, 1, 1}, {5, 3, 0}, {97, 193, 70}, {7, 65, 129}}) {
    expect_chains(e, all);
  }
}

TEST(MatmulTiles, ManyTermsAreOneChainWhateverIsPackedAtATime) {
  expect_chains({200, 160, 1100}, {1, 13});  // parts of the terms, and of those that threads share
  if (finds_races()) return;
  expect_chains({140, 70, 1030}, {0, 2, 15});  // parts of the terms
  expect_chains({130, 800, 64}, {1, 3});       // two groups of columns
  expect_chains({33, 64, 1024}, {2, 6});       // rows whose panel is copied
}

TEST(MatmulTiles, FewRowsAreTheSameChain) {
  for (const int64_t M : {1, 2, 15, 16, 17, 40, 128, 129}) {
    if (finds_races() && M != 17) continue;
    expect_chains({M, 100, 96}, {2, 14});
    expect_chains({M, 33, 290}, {2, 6});
  }
}

// Each way of a product, with factors in place and copied.
TEST(MatmulTiles, ColumnsOfWiderMatricesAreTheSameChain) {
  for (const MatmulExtent& e : {MatmulExtent{7, 65, 129}, {20, 100, 96}, {140, 200, 64}}) {
    const MatmulProblem p(e);
    const Numbers sums = chains(p);
    for (const TileUnit unit : tile_units()) {
      const WithTileUnit with(unit);
      CpuStream stream(matmul_budget, 2);
      for (int i = 0; i < 8; i += finds_races() ? 3 : 1) {
        MatmulForm f = matmul_form(i % 4);
        f.accumulate = i >= 4, f.alpha = 0.75;
        for (const MatmulTypes& t : tile_types) {
          leave_nan_in(stream, 64 << 20);
          EXPECT_EQ(p.run_in_wider(f, t, by_launch, stream), chains(p, sums, f, t.out))
              << describe(p, f, t) << ", unit " << name(unit);
        }
      }
    }
  }
}

TEST(MatmulTiles, DenormalNumbersAreZero) {
  MatmulProblem p({5, 40, 70});
  for (size_t i = 0; i < p.a.size(); ++i) p.a[i] = std::ldexp(p.a[i], i % 3 ? -70 : -128);
  for (size_t i = 0; i < p.b.size(); ++i) p.b[i] = std::ldexp(p.b[i], i % 2 ? -56 : -60);
  for (Numbers* all : {&p.a, &p.b}) {
    for (double& x : *all) x = static_cast<float>(bf16(static_cast<float>(x)));
  }
  const Numbers sums = chains(p);
  for (const TileUnit unit : tile_units()) {
    const WithTileUnit with(unit);
    CpuStream stream(matmul_budget, 1);
    const MatmulForm f = matmul_form(0);
    for (const MatmulTypes& t : tile_types) {
      EXPECT_EQ(product_of(p, f, t, stream), chains(p, sums, f, t.out)) << name(unit);
    }
  }
}

// Each way of a product, with fewer tasks than threads and with more.
TEST(MatmulTiles, BitsDoNotDependOnTheNumberOfThreads) {
  const WithTileUnit with(TileUnit::emulated);
  const struct {
    MatmulExtent extent;
    int form;
  } cases[] = {{{300, 130, 800}, 2},
               {{260, 300, 1100}, 1},
               {{260, 300, 96}, 1},
               {{20, 600, 64}, 2},
               {{3, 5, 7}, 0}};
  for (const auto& c : cases) {
    const MatmulProblem p(c.extent);
    const MatmulTypes& t = tile_types[0];
    SCOPED_TRACE(describe(p, matmul_form(c.form), t));
    CpuStream alone(matmul_budget, 1);
    const Numbers wanted = product_of(p, matmul_form(c.form), t, alone);
    for (const int threads : {2, 3, 5, 24}) {
      CpuStream several(matmul_budget, threads);
      EXPECT_EQ(product_of(p, matmul_form(c.form), t, several), wanted) << threads << " threads";
    }
  }
}

TEST(MatmulTiles, RowsAloneHaveTheBitsOfAllRows) {
  const WithTileUnit with(TileUnit::emulated);
  CpuStream stream(matmul_budget, 2);
  constexpr int64_t M = 200, N = 70, K = 100;
  for (const bool b_transposed : {false, true}) {
    const Tensor a = normal({M, K}, DType::bf16, stream, 1), c({{M, N}, DType::bf16}, stream);
    const Tensor b = normal(b_transposed ? Shape{N, K} : Shape{K, N}, DType::bf16, stream, 2);
    Matmul k{.c = c, .a = a, .b = b, .bias = {}, .b_transposed = b_transposed};
    launch(k, stream);
    const Numbers wanted = values(c);
    for (const std::vector<int64_t>& ends : {std::vector<int64_t>{1, 18, 200}, {33, 64, 200}}) {
      const Tensor in_parts = unset({M, N}, DType::bf16, stream);
      int64_t begin = 0;
      for (const int64_t end : ends) {
        k.c = in_parts.slice({begin, end}), k.a = a.slice({begin, end});
        launch(k, stream);
        begin = end;
      }
      EXPECT_EQ(values(in_parts), wanted);
    }
  }
}

TEST(MatmulTiles, MatricesOfABatchHaveTheBitsOfEachAlone) {
  const WithTileUnit with(TileUnit::emulated);
  CpuStream stream(matmul_budget, 3);
  for (int form = 0; form < batched_forms; ++form) {
    const BatchedCase batch = in_form({.count = 3, .M = 40, .N = 33, .K = 70}, form);
    if (batch.accumulate) continue;
    for (const MatmulTypes& types : tile_types) {
      const BatchedTypes t{types.in, types.out};
      const BatchedTensors tensors(batch, t, stream);
      const BatchedMatmul k = tensors.kernel(batch);
      Numbers wanted;
      for (int64_t i = 0; i < batch.count; ++i) {
        const Tensor c = unset({batch.M, batch.N}, t.out, stream);
        Matmul one = MatmulBatch(k).at(i);
        one.c = c;
        launch(one, stream);
        append(wanted, c);
      }
      launch(k, stream);
      EXPECT_EQ(values(tensors.c), wanted) << batch;
    }
  }
}

// Infinity and NaN reach the elements that they belong to, and no others.
TEST(MatmulTiles, WhatIsNotFiniteStaysInItsRowAndColumn) {
  for (const MatmulExtent& e : {MatmulExtent{70, 45, 50}, {5, 45, 50}}) {
    MatmulProblem p(e);
    p.a[static_cast<size_t>(3 * e.K + 49)] = std::numeric_limits<double>::infinity();
    p.b[static_cast<size_t>(48 * e.N + 44)] = std::numeric_limits<double>::quiet_NaN();
    const WithTileUnit with(TileUnit::emulated);
    CpuStream stream(matmul_budget, 2);
    for (int form = 0; form < 4; ++form) {
      const Numbers c = product_of(p, matmul_form(form), tile_types[0], stream);
      for (int64_t m = 0; m < e.M; ++m) {
        for (int64_t n = 0; n < e.N; ++n) {
          const double x = at(c, m * e.N + n);
          EXPECT_EQ(std::isnan(x), n == 44) << m << ", " << n;
          EXPECT_EQ(std::isinf(x), m == 3 && n != 44) << m << ", " << n;
        }
      }
    }
  }
}

TEST(MatmulTiles, PeakIsForetoldToTheByteForAnyNumberOfThreads) {
  const WithTileUnit with(TileUnit::emulated);
  for (const MatmulExtent& e : {MatmulExtent{1, 1, 1}, {7, 65, 129}, {260, 140, 1030}}) {
    const MatmulProblem p(e);
    for (const int i : {0, 1, 2, 9}) {
      for (int threads = 1; threads <= 7; threads += 2) {
        MetaStream meta(Machine{.architecture = this_processor(threads)});
        p.run(matmul_form(i), tile_types[0], by_launch, meta);
        const size_t foretold = meta.memory().peak;
        CpuStream stream(foretold, threads);
        p.run(matmul_form(i), tile_types[0], by_launch, stream);
        EXPECT_EQ(stream.memory().peak, foretold) << threads << " threads";
      }
    }
  }
}

size_t layer_workspace(const MatmulExtent& e, int form, int threads, Bf16Products products) {
  MetaStream stream(
      Machine{.architecture = CpuArchitecture{.threads = threads, .bf16_products = products}});
  const MatmulForm f = matmul_form(form);
  const auto matrix = [&](int64_t rows, int64_t columns, bool transposed) {
    return Tensor({transposed ? Shape{columns, rows} : Shape{rows, columns}, DType::bf16}, stream);
  };
  const Tensor a = matrix(e.M, e.K, f.a_transposed), b = matrix(e.K, e.N, f.b_transposed);
  const Tensor c = matrix(e.M, e.N, false);
  return workspace_bytes(Matmul{.c = c,
                                .a = a,
                                .b = b,
                                .bias = {},
                                .a_transposed = f.a_transposed,
                                .b_transposed = f.b_transposed},
                         stream.architecture());
}

struct LinearLayer {
  int64_t in, out;
};
constexpr LinearLayer linear_layers[] = {{768, 2304},  {768, 768},    {768, 3072}, {3072, 768},
                                         {768, 50304}, {2048, 2048},  {2048, 512}, {2048, 8192},
                                         {8192, 2048}, {2048, 128256}};

// Forward, and the gradients of what a layer reads and of its weight.
TEST(MatmulTiles, NoLinearLayerNeedsMoreWorkspaceThanByOneDnnOnTwoToEightThreads) {
  for (const auto& [in, out] : linear_layers) {
    for (const int64_t tokens : {256, 512, 1024, 2048, 4096, 8192}) {
      const struct {
        MatmulExtent extent;
        int form;
      } products[] = {{{tokens, out, in}, 2}, {{tokens, in, out}, 0}, {{out, in, tokens}, 1}};
      for (const auto& [extent, form] : products) {
        for (const int threads : {2, 3, 4, 8}) {
          const size_t before = layer_workspace(extent, form, threads, Bf16Products::pairs);
          const size_t bytes = layer_workspace(extent, form, threads, Bf16Products::tiles);
          EXPECT_LE(static_cast<double>(bytes),
                    (tokens > 4096 ? 1.25 : 1.0) * static_cast<double>(before))
              << extent.M << " by " << extent.K << " by " << extent.N << ", form " << form << ", "
              << threads << " threads";
        }
      }
    }
  }
}

TEST(MatmulTiles, AThreadMoreNeverTakesLessWorkspace) {
  for (const MatmulExtent& e :
       {MatmulExtent{160, 32, 32}, {513, 130, 1030}, {300, 300, 1100}, {1024, 768, 3072}}) {
    for (int form = 0; form < 4; ++form) {
      size_t before = 0;
      for (int threads = 1; threads <= 70; ++threads) {
        const size_t bytes = layer_workspace(e, form, threads, Bf16Products::tiles);
        EXPECT_GE(bytes, before) << e.M << " by " << e.K << " by " << e.N << ", " << threads;
        before = bytes;
      }
    }
  }
}

TEST(MatmulTiles, AWorkspaceTooSmallIsAnErrorAndNoWriteBeyondIt) {
  const WithTileUnit with(TileUnit::emulated);
  CpuStream stream(matmul_budget, 2);
  const Tensor a = normal({64, 96}, DType::bf16, stream, 1);
  const Tensor b = normal({96, 64}, DType::bf16, stream, 2);
  const Tensor c = unset({64, 64}, DType::bf16, stream), small({Shape{8}}, stream);
  const Matmul k{.c = c, .a = a, .b = b, .bias = {}, .workspace = small};
  stream.enqueue([&] { run(k, stream); });
  EXPECT_THROW(stream.synchronize(), Error);
}

}  // namespace
}  // namespace spool::testing
