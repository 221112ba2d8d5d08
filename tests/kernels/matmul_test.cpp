// Products of matrices on the cpu against nested loops in f64.

#include "spool/kernels/matmul.h"

#include "spool/kernels/cpu/matmul.h"
#include "spool/models/families/gpt2.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

struct Extent {
  int64_t M, N, K;
};

struct Types {
  DType in, out;
};
constexpr Types all_types[] = {{DType::f64, DType::f64},
                               {DType::f32, DType::f32},
                               {DType::bf16, DType::bf16},
                               {DType::bf16, DType::f32}};

struct Form {
  bool a_transposed, b_transposed, bias, accumulate;
};

// By the bits of i.
Form form(int i) { return {(i & 1) != 0, (i & 2) != 0, (i & 4) != 0, (i & 8) != 0}; }

constexpr size_t plenty = size_t{256} << 20;

// Numbers that every type can hold.
Numbers exact(int64_t n, uint64_t seed) {
  Random random(seed);
  Numbers all;
  for (int64_t i = 0; i < n; ++i) {
    all.push_back(static_cast<float>(bf16(static_cast<float>(random.normal()))));
  }
  return all;
}

// A matrix of `rows` rows, or its transpose.
Tensor matrix(const Numbers& from, int64_t rows, int64_t columns, bool transposed, DType type,
              Stream& stream) {
  Numbers all = from;
  for (int64_t i = 0; transposed && i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      all[static_cast<size_t>(j * rows + i)] = at(from, i * columns + j);
    }
  }
  const Shape shape = transposed ? Shape{columns, rows} : Shape{rows, columns};
  if (type == DType::f64) return make_tensor<double>(shape, all, stream);
  const std::vector<float> f32(all.begin(), all.end());
  if (type == DType::f32) return make_tensor<float>(shape, f32, stream);
  return make_tensor<bf16>(shape, std::vector<bf16>(f32.begin(), f32.end()), stream);
}

// A product by which way it is computed: of kernels/matmul.h, or that which stands in for oneDNN's.
using Way = void (*)(const Matmul&, Stream&);
void by_launch(const Matmul& k, Stream& stream) { launch(k, stream); }
void by_plain_loops(const Matmul& k, Stream& stream) {
  auto& cpu = static_cast<CpuStream&>(stream);
  cpu.enqueue([k, &cpu] { cpu::multiply_plain(k, cpu::tiling(k), cpu); });
}

struct Problem {
  Extent extent;
  Numbers a, b, bias, before, product;

  explicit Problem(const Extent& e)
      : extent(e),
        a(exact(e.M * e.K, 1)),
        b(exact(e.K * e.N, 2)),
        bias(exact(e.N, 3)),
        before(exact(e.M * e.N, 4)) {}

  void solve() {
    product.assign(static_cast<size_t>(extent.M * extent.N), 0);
    for (int64_t m = 0; m < extent.M; ++m) {
      double* row = product.data() + m * extent.N;
      for (int64_t k = 0; k < extent.K; ++k) {
        const double factor = at(a, m * extent.K + k);
        const double* from = b.data() + k * extent.N;
        for (int64_t n = 0; n < extent.N; ++n) row[n] += factor * from[n];
      }
    }
  }

  Numbers wanted(const Form& f) const {
    Numbers all = product;
    for (size_t i = 0; i < all.size(); ++i) {
      if (f.bias) all[i] += bias[i % bias.size()];
      if (f.accumulate) all[i] += before[i];
    }
    return all;
  }

  Tensor run(const Form& f, const Types& t, Way way, Stream& stream) const {
    const auto [M, N, K] = extent;
    const Tensor left = matrix(a, M, K, f.a_transposed, t.in, stream);
    const Tensor right = matrix(b, K, N, f.b_transposed, t.in, stream);
    const Tensor added = matrix(bias, 1, N, false, t.in, stream);
    const Tensor c =
        f.accumulate ? matrix(before, M, N, false, t.out, stream) : unset({M, N}, t.out, stream);
    way({.c = Grad(c, f.accumulate),
         .a = left,
         .b = right,
         .bias = f.bias ? View(added) : View(),
         .a_transposed = f.a_transposed,
         .b_transposed = f.b_transposed},
        stream);
    return c;
  }
};

std::string describe(const Problem& p, const Form& f, const Types& t) {
  return sentence(p.extent.M, " by ", p.extent.K, " by ", p.extent.N, ", ", name(t.in), " into ",
                  name(t.out), f.a_transposed ? ", a transposed" : "",
                  f.b_transposed ? ", b transposed" : "", f.bias ? ", with bias" : "",
                  f.accumulate ? ", added" : "");
}

void expect_product(const Problem& p, const Form& f, const Types& t, Stream& stream) {
  SCOPED_TRACE(describe(p, f, t));
  const Numbers wanted = p.wanted(f);
  EXPECT_LT(difference(values(p.run(f, t, by_launch, stream)), wanted), tolerance(t.out));
  if (t.in == DType::f64) return;  // plain already
  EXPECT_LT(difference(values(p.run(f, t, by_plain_loops, stream)), wanted), tolerance(t.out));
}

TEST(Matmul, IsItsFormulaInEveryForm) {
  CpuStream stream(plenty, 2);
  for (const Extent& e : {Extent{1, 1, 1}, {5, 3, 0}, {97, 193, 70}, {7, 65, 129}}) {
    Problem p(e);
    p.solve();
    for (const Types& t : all_types) {
      for (int i = 0; i < 16; ++i) expect_product(p, form(i), t, stream);
    }
  }
}

// One tile or several, of rows and of columns, and last ones that are ragged; each with both
// factors as they are and transposed, and with and without bias and addition.
TEST(Matmul, IsItsFormulaInEverySizeSlow) {
  CpuStream stream(plenty, 2);
  int variant = 0;
  for (const int64_t M : {1, 97, 513, 1030}) {
    for (const int64_t N : {1, 193, 1300}) {
      for (const int64_t K : {0, 1, 300}) {
        Problem p({M, N, K});
        p.solve();
        for (const Types& t : all_types) {
          for (int i = 0; i < 4; ++i, variant += 5)
            expect_product(p, form(variant % 16), t, stream);
        }
      }
    }
  }
}

// Few rows, by rows of b: whole blocks of these and ragged ones, whole vectors of terms and others,
// and a row more than there is a way of its own for.
TEST(Matmul, IsItsFormulaForFewRows) {
  CpuStream stream(plenty, 2);
  for (const int64_t M : {1, 2, 3, 4, 5}) {
    for (const int64_t N : {1, 6, 67}) {
      for (const int64_t K : {0, 1, 15, 16, 31, 64, 77, 130, 300}) {
        Problem p({M, N, K});
        p.solve();
        for (const Types& t : all_types) {
          for (const bool bias : {false, true}) {
            for (const bool accumulate : {false, true}) {
              const Form f{.a_transposed = false,
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

TEST(Matmul, TakesNoMemoryForFewRows) {
  CpuStream stream(plenty, 2);
  const Tensor b({Shape{1300, 300}}, stream), many({Shape{5, 300}}, stream),
      c({Shape{5, 1300}}, stream);
  const auto bytes = [&](int64_t M) {
    const Matmul k{
        .c = c.slice({0, M}), .a = many.slice({0, M}), .b = b, .bias = {}, .b_transposed = true};
    return workspace_bytes(k, stream.architecture());
  };
  for (const int64_t M : {1, 2, 3, 4}) EXPECT_EQ(bytes(M), 0u);
  EXPECT_GT(bytes(5), 0u);
}

TEST(Matmul, HasTheSameBitsForFewRowsAndAnyNumberOfThreads) {
  for (const int64_t M : {1, 3}) {
    const Problem p({M, 1300, 130});
    const Form f{.a_transposed = false, .b_transposed = true, .bias = true, .accumulate = true};
    for (const Types& t : all_types) {
      expect_same_for_any_threads(
          [&](Stream& stream) { return values(p.run(f, t, by_launch, stream)); });
    }
  }
}

TEST(Matmul, HasTheSameBitsForAnyNumberOfThreads) {
  const Problem p({513, 1300, 130});
  for (const Types& t : all_types) {
    for (int i = 0; i < 4; ++i) {
      for (const Way way : {by_launch, by_plain_loops}) {
        SCOPED_TRACE(describe(p, form(i), t));
        CpuStream alone(plenty, 1);
        const Numbers wanted = values(p.run(form(i), t, way, alone));
        for (const int threads : {2, 3, 5}) {
          CpuStream several(plenty, threads);
          EXPECT_EQ(values(p.run(form(i), t, way, several)), wanted) << threads << " threads";
        }
      }
    }
  }
}

TEST(Matmul, CutsWhatIsLarge) {
  CpuStream stream(plenty, 1);
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

// Whether oneDNN computed it; what it is of is zero.
bool by_onednn(const Extent& e, const Form& f, DType type) {
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

// Its forward, and the gradients of its input and its weight.
void expect_linear_by_onednn(int64_t tokens, int64_t in, int64_t out, DType type, bool bias) {
  SCOPED_TRACE(sentence(tokens, " tokens, from ", in, " to ", out, ", ", name(type)));
  EXPECT_TRUE(by_onednn({tokens, out, in}, {false, true, bias, false}, type));
  EXPECT_TRUE(by_onednn({tokens, in, out}, {false, false, false, false}, type));
  EXPECT_TRUE(by_onednn({out, in, tokens}, {true, false, false, true}, type));
}

TEST(Matmul, NoneOfGpt2sFallsBackOnPlainLoopsSlow) {
  if (!by_onednn({512, 512, 512}, {}, DType::f32)) GTEST_SKIP() << "there is no oneDNN";
  const Gpt2Config config;
  for (const DType type : {DType::f32, DType::bf16}) {
    if (!by_onednn({512, 512, 512}, {}, type)) continue;  // not on this processor
    const int64_t C = config.channels;
    expect_linear_by_onednn(256, C, 3 * C, type, true);
    expect_linear_by_onednn(256, C, C, type, true);
    expect_linear_by_onednn(256, C, 4 * C, type, true);
    expect_linear_by_onednn(256, 4 * C, C, type, true);
    expect_linear_by_onednn(128, C, config.padded_vocabulary(), type, false);
  }
}

}  // namespace
}  // namespace spool::testing
