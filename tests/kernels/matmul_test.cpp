// Products of matrices on the cpu against nested loops in f64.

#include "spool/kernels/matmul.h"

#include "tests/kernels/matmul_testing.h"

namespace spool::testing {
namespace {

void expect_product(const MatmulProblem& p, const MatmulForm& f, const MatmulTypes& t,
                    Stream& stream) {
  SCOPED_TRACE(describe(p, f, t));
  const Numbers wanted = p.wanted(f);
  EXPECT_LT(difference(values(p.run(f, t, by_launch, stream)), wanted), tolerance(t.out));
  if (t.in == DType::f64) return;  // which has plain loops anyway
  EXPECT_LT(difference(values(p.run(f, t, by_plain_loops, stream)), wanted), tolerance(t.out));
}

TEST(Matmul, FollowsItsFormulaInEveryForm) {
  CpuStream stream(matmul_budget, 2);
  for (const MatmulExtent& e : {MatmulExtent{1, 1, 1}, {5, 3, 0}, {97, 193, 70}, {7, 65, 129}}) {
    MatmulProblem p(e);
    p.solve();
    for (const MatmulTypes& t : all_matmul_types) {
      for (int i = 0; i < 16; ++i) expect_product(p, matmul_form(i), t, stream);
    }
  }
}

// One tile or several of rows and of columns, the last ones ragged; factors plain and transposed,
// with and without bias and addition.
TEST(Matmul, FollowsItsFormulaInEverySizeSlow) {
  CpuStream stream(matmul_budget, 2);
  int variant = 0;
  for (const int64_t M : {1, 97, 513, 1030}) {
    for (const int64_t N : {1, 193, 1300}) {
      for (const int64_t K : {0, 1, 300}) {
        MatmulProblem p({M, N, K});
        p.solve();
        for (const MatmulTypes& t : all_matmul_types) {
          for (int i = 0; i < 4; ++i, variant += 5)
            expect_product(p, matmul_form(variant % 16), t, stream);
        }
      }
    }
  }
}

// Up to four rows have a kernel of their own, which walks the rows of b: whole and ragged blocks of
// these, whole and ragged vectors of terms, and one row more.
TEST(Matmul, FollowsItsFormulaForFewRows) {
  CpuStream stream(matmul_budget, 2);
  for (const int64_t M : {1, 2, 3, 4, 5}) {
    for (const int64_t N : {1, 6, 67}) {
      for (const int64_t K : {0, 1, 15, 16, 31, 64, 77, 130, 300}) {
        MatmulProblem p({M, N, K});
        p.solve();
        for (const MatmulTypes& t : all_matmul_types) {
          for (const bool bias : {false, true}) {
            for (const bool accumulate : {false, true}) {
              const MatmulForm f{.a_transposed = false,
                                 .b_transposed = true,
                                 .bias = bias,
                                 .accumulate = accumulate};
              SCOPED_TRACE(describe(p, f, t));
              const Numbers c = values(p.run(f, t, by_launch, stream));
              EXPECT_LT(difference(c, p.wanted(f)), tolerance(t.out));
            }
          }
        }
      }
    }
  }
}

// Few rows, small products, and those that a library computes; the columns beside stay as they are.
TEST(Matmul, MultipliesColumnsOfWiderMatricesAndScales) {
  CpuStream stream(matmul_budget, 2);
  for (const MatmulExtent& e : {MatmulExtent{1, 1, 1}, {5, 67, 130}, {20, 9, 16}, {97, 193, 70}}) {
    MatmulProblem p(e);
    p.solve();
    for (const MatmulTypes& t : all_matmul_types) {
      for (int i = 0; i < 8; ++i) {
        MatmulForm f = matmul_form(i % 4);
        f.accumulate = i >= 4;
        f.alpha = i % 2 ? -0.375 : 2;
        SCOPED_TRACE(describe(p, f, t));
        for (const Multiply way : {by_launch, by_plain_loops}) {
          EXPECT_LT(difference(p.run_in_wider(f, t, way, stream), p.wanted(f)), tolerance(t.out));
        }
      }
    }
  }
}

TEST(Matmul, RefusesColumnsThatDoNotFit) {
  CpuStream stream(matmul_budget, 1);
  const Tensor a({Shape{3, 8}}, stream), c({Shape{3, 3}}, stream), bias({Shape{3}}, stream);
  const auto refuses = [&](const char* words, const auto& change) {
    Matmul k{.c = c, .a = columns_of(a, {0, 3}), .b = columns_of(a, {4, 7})};
    change(k);
    expect_error(ErrorKind::invalid, {words}, [&] { launch(k, stream); });
  };
  refuses("rows of a that are 2 elements apart, and have 3", [](Matmul& k) { k.a_row = 2; });
  refuses("a bias with an alpha of 2", [&](Matmul& k) { k.bias = bias, k.alpha = 2; });
  refuses("or columns of a matrix", [&](Matmul& k) { k.bias = bias, k.c_row = 4; });
}

TEST(Matmul, NeedsNoWorkspaceForFewRows) {
  MetaStream stream(Machine{.architecture = CpuArchitecture{.threads = 2}});
  const Tensor b({Shape{1300, 300}}, stream), many({Shape{9, 300}}, stream),
      c({Shape{9, 1300}}, stream);
  const auto bytes = [&](int64_t M) {
    const Matmul k{
        .c = c.slice({0, M}), .a = many.slice({0, M}), .b = b, .bias = {}, .b_transposed = true};
    return workspace_bytes(k, stream.architecture());
  };
  for (int64_t M = 1; M <= 8; ++M) EXPECT_EQ(bytes(M), 0u);
  EXPECT_GT(bytes(9), 0u);
}

// The workspace of a product with these factors, on this many threads.
size_t workspace_of(const MatmulExtent& e, const MatmulForm& f, const MatmulTypes& t, int threads) {
  MetaStream stream(Machine{.architecture = CpuArchitecture{.threads = threads}});
  const auto matrix = [&](int64_t rows, int64_t columns, bool transposed, DType type) {
    return Tensor({transposed ? Shape{columns, rows} : Shape{rows, columns}, type}, stream);
  };
  const Tensor c = matrix(e.M, e.N, false, t.out), a = matrix(e.M, e.K, f.a_transposed, t.in),
               b = matrix(e.K, e.N, f.b_transposed, t.in);
  return workspace_bytes(Matmul{.c = Grad(c, f.accumulate),
                                .a = a,
                                .b = b,
                                .a_transposed = f.a_transposed,
                                .b_transposed = f.b_transposed},
                         stream.architecture());
}

// Three times the factors and the sums in f32, in whole blocks.
size_t bytes_of_tiles(const MatmulExtent& e) {
  constexpr int64_t block = 64;  // of rows and of columns
  const int64_t M = round_up(e.M, block), N = round_up(e.N, block), K = round_up(e.K, block);
  return static_cast<size_t>(3 * 4 * (M * K + N * K + M * N));
}

TEST(Matmul, WorkspaceFollowsTheSizeOfTheProduct) {
  for (const MatmulTypes& t : all_matmul_types) {
    for (int i = 0; i < 16; ++i) {
      const MatmulForm f = matmul_form(i);
      for (const int threads : {1, 8}) {
        EXPECT_LE(workspace_of({2, 2, 2}, f, t, threads), 11u << 10);
        EXPECT_EQ(workspace_of({7, 9, 0}, f, t, threads), 0u);
      }
      for (const MatmulExtent& e : {MatmulExtent{1, 1, 1}, {5, 7, 3}, {33, 17, 65}, {64, 64, 64}}) {
        EXPECT_LE(workspace_of(e, f, t, 8), bytes_of_tiles(e)) << describe(e, f, t);
      }
    }
  }
}

TEST(Matmul, NeedsNoWorkspaceForSmallProducts) {
  for (const MatmulTypes& t : all_matmul_types) {
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(workspace_of({32, 32, 32}, matmul_form(i), t, 8), 0u);
      EXPECT_EQ(workspace_of({8, 64, 64}, matmul_form(i), t, 8), 0u);
      for (const MatmulExtent& e : {MatmulExtent{33, 32, 32}, {65, 9, 9}, {9, 65, 9}, {9, 9, 65}}) {
        EXPECT_EQ(workspace_of(e, matmul_form(i), t, 8) == 0, t.in == DType::f64)
            << describe(e, {}, t);
      }
    }
  }
}

TEST(Matmul, WorkspaceGrowsWithTheThreadsUpToTheTiles) {
  for (const MatmulTypes& t : all_matmul_types) {
    for (int i = 0; i < 16; ++i) {
      const MatmulForm f = matmul_form(i);
      const size_t one = workspace_of({1030, 1300, 300}, f, t, 1);
      EXPECT_LE(one, (size_t{1} << 20) + 4 * 1024 * 4096);
      size_t before = one;
      for (int threads = 2; threads <= 40; ++threads) {
        const size_t bytes = workspace_of({1030, 1300, 300}, f, t, threads);
        EXPECT_GE(bytes, before);
        EXPECT_LE(bytes, static_cast<size_t>(threads) * one);
        before = bytes;
      }
      EXPECT_EQ(before, workspace_of({1030, 1300, 300}, f, t, 1000));
    }
  }
}

TEST(Matmul, CutsLargeProductsIntoTiles) {
  CpuStream stream(matmul_budget, 1);
  const Tensor a({Shape{1030, 8}}, stream), b({Shape{8, 1300}}, stream);
  const Tensor at({Shape{8, 1030}}, stream), c({Shape{1030, 1300}}, stream);
  const cpu::Tiling forward = cpu::tiling({.c = c, .a = a, .b = b});
  EXPECT_GT(forward.row_tiles, 1);
  EXPECT_GT(forward.column_tiles, 1);
  const cpu::Tiling weights = cpu::tiling({.c = c, .a = at, .b = b, .a_transposed = true});
  EXPECT_GT(weights.row_tiles, 1);
  EXPECT_NE(1030 % forward.rows, 0);
  EXPECT_NE(1300 % forward.columns, 0);
}

TEST(Matmul, CutsEvenlyForTwoAndFourThreads) {
  CpuStream stream(matmul_budget, 1);
  const auto columns = [&](int64_t N) {
    const Tensor a({Shape{64, 8}}, stream), b({Shape{8, N}}, stream), c({Shape{64, N}}, stream);
    return cpu::tiling({.c = c, .a = a, .b = b}).columns;
  };
  EXPECT_EQ(columns(64), 64);
  EXPECT_EQ(columns(256), 128);   // twice
  EXPECT_EQ(columns(257), 144);   // and 113
  EXPECT_EQ(columns(576), 144);   // four times: three tiles would leave a thread idle
  EXPECT_EQ(columns(768), 192);   // four times
  EXPECT_EQ(columns(960), 240);   // four times
  EXPECT_EQ(columns(3072), 384);  // eight times
}

// Whether oneDNN computes this product (of zeros).
bool by_onednn(const MatmulExtent& e, const MatmulForm& f, DType type) {
  CpuStream stream(size_t{1} << 30, 2);
  const auto zeros = [&](int64_t rows, int64_t columns, bool transposed) {
    return Tensor({transposed ? Shape{columns, rows} : Shape{rows, columns}, type}, stream);
  };
  const Tensor c = zeros(e.M, e.N, false), a = zeros(e.M, e.K, f.a_transposed);
  const Tensor b = zeros(e.K, e.N, f.b_transposed), bias({Shape{e.N}, type}, stream);
  Matmul k{.c = Grad(c, f.accumulate),
           .a = a,
           .b = b,
           .bias = f.bias ? View(bias) : View(),
           .a_transposed = f.a_transposed,
           .b_transposed = f.b_transposed};
  const auto bytes = static_cast<int64_t>(workspace_bytes(k, stream.architecture()));
  const Tensor workspace({Shape{bytes / 4 + 1}, DType::f32}, stream);
  k.workspace = workspace;
  bool done = false;
  stream.enqueue([&] { done = cpu::multiply_onednn(k, cpu::tiling(k), stream); });
  stream.synchronize();
  return done;
}

// Forward, and the gradients of input and weight.
void expect_linear_by_onednn(int64_t tokens, int64_t in, int64_t out, DType type, bool bias) {
  SCOPED_TRACE(sentence(tokens, " tokens, from ", in, " to ", out, ", ", name(type)));
  EXPECT_TRUE(by_onednn({tokens, out, in}, {false, true, bias, false}, type));
  EXPECT_TRUE(by_onednn({tokens, in, out}, {false, false, false, false}, type));
  EXPECT_TRUE(by_onednn({out, in, tokens}, {true, false, false, true}, type));
}

// Its scratch suffices for any size; with bias and addition, oneDNN keeps the sums of an f32 tile,
// which may be too large.
TEST(Matmul, OneDnnComputesProductsOfAllSizesSlow) {
  Random random(1);
  const auto extent = [&] { return static_cast<int64_t>(std::exp2(10.0 * random.uniform())); };
  for (const DType type : {DType::f32, DType::bf16}) {
    if (!by_onednn({512, 512, 512}, {}, type)) continue;
    for (int i = 0; i < 320; ++i) {
      const MatmulExtent e{extent(), extent(), extent()};
      const MatmulForm f = matmul_form(i);
      const bool large = type == DType::f32 && f.bias && f.accumulate && e.M * e.N > 100'000;
      // oneDNN is not used for small products.
      const bool is_small = std::max({e.M, e.N, e.K}) <= 64 && e.M * e.N * e.K <= 32 * 32 * 32;
      if (large || is_small) continue;
      EXPECT_TRUE(by_onednn(e, f, type)) << describe(e, f, {type, type});
    }
  }
}

TEST(Matmul, OneDnnComputesAllProductsOfGpt2Slow) {
  if (!by_onednn({512, 512, 512}, {}, DType::f32)) GTEST_SKIP() << "there is no oneDNN";
  constexpr int64_t C = 768, padded_vocabulary = 50304;
  for (const DType type : {DType::f32, DType::bf16}) {
    if (!by_onednn({512, 512, 512}, {}, type)) continue;  // not on this processor
    expect_linear_by_onednn(256, C, 3 * C, type, true);
    expect_linear_by_onednn(256, C, C, type, true);
    expect_linear_by_onednn(256, C, 4 * C, type, true);
    expect_linear_by_onednn(256, 4 * C, C, type, true);
    expect_linear_by_onednn(128, C, padded_vocabulary, type, false);
  }
}

}  // namespace
}  // namespace spool::testing
