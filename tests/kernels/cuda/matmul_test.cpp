// Matmul on cuda against the cpu.

#include "spool/kernels/matmul.h"

#include "spool/kernels/matmul_algorithms.h"
#include "tests/kernels/cuda_testing.h"

#if SPOOL_CUDA_EMULATED
#include "tests/emulator/include/cublasLt.h"
#endif

namespace spool::testing {
namespace {

class CudaMatmul : public OnCuda {};

struct Extent {
  int64_t M, N, K;
};

struct Types {
  DType in, out;
};
constexpr Types all_types[] = {
    {DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};

struct Form {
  bool a_transposed = false, b_transposed = false, bias = false, accumulate = false;
};

// One of 16 forms, by the bits of i.
Form form(int i) { return {(i & 1) != 0, (i & 2) != 0, (i & 4) != 0, (i & 8) != 0}; }

// A matrix, `skip` rows into its memory.
Tensor matrix(int64_t rows, int64_t columns, bool transposed, int64_t skip, DType type,
              Stream& stream, uint64_t seed) {
  if (transposed) std::swap(rows, columns);
  if (rows * columns == 0) return Tensor({Shape{rows, columns}, type}, stream);
  return normal({skip + rows, columns}, type, stream, seed).slice({skip, skip + rows});
}

Numbers product(const Extent& e, const Form& f, const Types& t, int64_t skip, Stream& stream) {
  const Tensor a = matrix(e.M, e.K, f.a_transposed, skip, t.in, stream, 1);
  const Tensor b = matrix(e.K, e.N, f.b_transposed, skip, t.in, stream, 2);
  const Tensor bias = normal({skip + e.N, 1}, t.in, stream, 3).slice({skip, skip + e.N});
  const Tensor c = f.accumulate ? normal({skip + e.M, e.N}, t.out, stream, 4)
                                : unset({skip + e.M, e.N}, t.out, stream);
  launch(Matmul{.c = Grad(c.slice({skip, skip + e.M}), f.accumulate),
                .a = a,
                .b = b,
                .bias = f.bias ? View(bias.reshape({e.N})) : View(),
                .a_transposed = f.a_transposed,
                .b_transposed = f.b_transposed},
         stream);
  return values(c.slice({skip, skip + e.M}));
}

// A misaligned bias is added separately, which in bf16 rounds once more.
double bound(const Form& f, const Types& t, int64_t skip) {
  return (f.bias && f.accumulate && skip > 0 ? 2 : 1) * tolerance(t.out);
}

void expect_in_every_form(const Extent& e, int64_t skip) {
  for (const Types& t : all_types) {
    for (int i = 0; i < 16; ++i) {
      SCOPED_TRACE(sentence(e.M, " by ", e.K, " by ", e.N, ", ", name(t.in), " into ", name(t.out),
                            ", form ", i, ", ", skip, " rows in"));
      expect_as_on_cpu([&](Stream& stream) { return product(e, form(i), t, skip, stream); },
                       bound(form(i), t, skip));
    }
  }
}

TEST_F(CudaMatmul, MatchesTheCpuInEveryForm) {
  for (const Extent& e : {Extent{1, 1, 1}, {3, 5, 7}, {16, 24, 32}, {70, 33, 65}, {130, 8, 9}}) {
    expect_in_every_form(e, /*skip=*/0);
  }
}

TEST_F(CudaMatmul, TakesMisalignedSlices) {
  for (const Extent& e : {Extent{1, 1, 1}, {5, 7, 3}, {16, 4, 12}, {9, 33, 65}}) {
    expect_in_every_form(e, /*skip=*/1);
  }
}

TEST_F(CudaMatmul, TakesFewRows) {
  for (const int64_t M : {1, 2, 3, 4}) expect_in_every_form({M, 67, 130}, /*skip=*/0);
}

// Columns 2 and on of wider matrices, scaled; those beside stay as they are.
Numbers product_of_columns(const Extent& e, const Form& f, const Types& t, Stream& stream) {
  const auto wider = [&](int64_t rows, int64_t columns, bool transposed, DType type,
                         uint64_t seed) {
    if (transposed) std::swap(rows, columns);
    return normal({rows, columns + 5}, type, stream, seed);
  };
  const Tensor a = wider(e.M, e.K, f.a_transposed, t.in, 1),
               b = wider(e.K, e.N, f.b_transposed, t.in, 2), c = wider(e.M, e.N, false, t.out, 4);
  const auto inner = [](const Tensor& all) { return columns_of(all, {2, all.shape().row() - 3}); };
  launch(Matmul{.c = Grad(inner(c), f.accumulate),
                .a = inner(a),
                .b = inner(b),
                .a_transposed = f.a_transposed,
                .b_transposed = f.b_transposed,
                .alpha = -1.5,
                .a_row = a.shape().row(),
                .b_row = b.shape().row(),
                .c_row = c.shape().row()},
         stream);
  return values(c);
}

TEST_F(CudaMatmul, MultipliesColumnsOfWiderMatricesAndScales) {
  for (const Extent& e : {Extent{1, 1, 1}, {3, 5, 7}, {70, 33, 65}}) {
    for (const Types& t : all_types) {
      for (int i = 0; i < 8; ++i) {
        Form f = form(i % 4);
        f.accumulate = i >= 4;
        SCOPED_TRACE(sentence(e.M, " by ", e.K, " by ", e.N, ", ", name(t.in), ", form ", i));
        expect_as_on_cpu([&](Stream& stream) { return product_of_columns(e, f, t, stream); },
                         bound(f, t, 0));
      }
    }
  }
}

TEST_F(CudaMatmul, WithoutTermsIsBiasOrZero) { expect_in_every_form({5, 11, 0}, /*skip=*/0); }

TEST_F(CudaMatmul, MayBeEmpty) {
  for (const Extent& e : {Extent{0, 3, 4}, {3, 0, 4}, {0, 0, 0}}) {
    const auto stream = cuda_stream();
    const Tensor a({Shape{e.M, e.K}}, *stream), b({Shape{e.K, e.N}}, *stream);
    launch(Matmul{.c = Tensor({Shape{e.M, e.N}}, *stream), .a = a, .b = b}, *stream);
    stream->synchronize();
  }
}

TEST_F(CudaMatmul, RefusesF64AndF32IntoBf16) {
  const auto stream = cuda_stream();
  const Tensor f64({Shape{4, 4}, DType::f64}, *stream), f32({Shape{4, 4}, DType::f32}, *stream);
  const Tensor bf16({Shape{4, 4}, DType::bf16}, *stream);
  const auto multiply = [&](const Tensor& c, const Tensor& a) {
    launch(Matmul{.c = c, .a = a, .b = a}, *stream);
  };
  expect_error(ErrorKind::invalid, {"f64"}, [&] { multiply(f64, f64); });
  expect_error(ErrorKind::invalid, {"bf16", "f32"}, [&] { multiply(bf16, f32); });
}

size_t workspace(const Extent& e) {
  const auto view = [](int64_t rows, int64_t columns) {
    return View(nullptr, {Shape{rows, columns}, DType::bf16});
  };
  return Matmul{.c = view(e.M, e.N), .a = view(e.M, e.K), .b = view(e.K, e.N)}.workspace_bytes(
      CudaArchitecture{});
}

TEST(CudaMatmulWorkspace, GrowsWithTheProductUpTo32MiB) {
  constexpr size_t KiB = 1024, MiB = 1024 * KiB;
  EXPECT_EQ(workspace({0, 3, 4}), 0u);
  EXPECT_EQ(workspace({3, 4, 0}), 0u);
  EXPECT_LE(workspace({3, 5, 7}), 16 * KiB);
  EXPECT_LE(workspace({1, 3072, 768}), 8 * MiB);
  EXPECT_EQ(workspace({32768, 50304, 768}), 32 * MiB);
  for (const int64_t M : {1, 100, 1000}) {
    EXPECT_LE(workspace({M, 768, 768}), workspace({2 * M, 768, 768}));
  }
}

#if SPOOL_CUDA_EMULATED
TEST_F(CudaMatmul, AsksForAnAlgorithmOnce) {
  const auto stream = cuda_stream();
  const Tensor a = normal({8, 8}, DType::f32, *stream, 1),
               b = normal({9, 8}, DType::f32, *stream, 2);
  const Tensor c({Shape{8, 8}}, *stream);
  const auto asked = [&](const View& right) {
    const int before = emulator::cublas_lt().heuristics;
    launch(Matmul{.c = c, .a = a, .b = right}, *stream);
    return emulator::cublas_lt().heuristics - before;
  };
  EXPECT_EQ(asked(b.slice({0, 8})), 1);
  EXPECT_EQ(asked(b.slice({0, 8})), 0);
  EXPECT_EQ(asked(b.slice({1, 9})), 0);  // aligned as well
}

struct Products {
  std::unique_ptr<Stream> stream = cuda_stream();
  Tensor a = normal({8, 8}, DType::f32, *stream, 1), b = normal({8, 8}, DType::f32, *stream, 2),
         c = unset({8, 8}, DType::f32, *stream);

  // The algorithm that computes them.
  int algorithm() {
    launch(Matmul{.c = c, .a = a, .b = b}, *stream);
    stream->synchronize();
    return emulator::cublas_lt().last_algorithm;
  }
  int place() const { return matmul_algorithms(*stream).places.begin()->second; }
};

TEST_F(CudaMatmul, TakesTheAlgorithmOfATable) {
  Products first;
  EXPECT_EQ(first.algorithm(), 0);
  MatmulAlgorithms table = matmul_algorithms(*first.stream);
  ASSERT_EQ(table.places.size(), 1u);
  EXPECT_EQ(table.device, "emulated GPU");
  EXPECT_EQ(table.places.begin()->second, 0);

  const auto algorithm_of_table = [](const MatmulAlgorithms& given) {
    Products products;
    use_matmul_algorithms(*products.stream, given);
    const int algorithm = products.algorithm();
    EXPECT_EQ(products.place(), algorithm);
    return algorithm;
  };
  table.places.begin()->second = 1;
  EXPECT_EQ(algorithm_of_table(table), 1);
  table.places.begin()->second = max_matmul_algorithms - 1;  // which these heuristics do not name
  EXPECT_EQ(algorithm_of_table(table), 0);
  table.places.begin()->second = 1;
  ++table.library;
  EXPECT_EQ(algorithm_of_table(table), 0);
  --table.library;
  table.device = "another GPU";
  EXPECT_EQ(algorithm_of_table(table), 0);
}

TEST_F(CudaMatmul, TimesAlgorithmsWhenAskedAndTakesTheFastest) {
  for (const int fastest : {0, 1}) {
    emulator::cublas_lt().second_takes_longer = fastest == 0 ? 0.005 : -0.005;
    Products products;
    time_matmul_algorithms(*products.stream);
    EXPECT_EQ(products.algorithm(), fastest);
    EXPECT_EQ(products.place(), fastest);
    CpuStream cpu(on_both, 1);
    const Tensor a = normal({8, 8}, DType::f32, cpu, 1), b = normal({8, 8}, DType::f32, cpu, 2);
    const Tensor c({Shape{8, 8}}, cpu);
    launch(Matmul{.c = c, .a = a, .b = b}, cpu);
    EXPECT_LT(difference(values(products.c), values(c)), 1e-5);
  }
  emulator::cublas_lt() = {};
}

TEST_F(CudaMatmul, MustRunOnceBeforeACapture) {
  const auto stream = cuda_stream();
  const Tensor a = normal({8, 8}, DType::f32, *stream, 1), c = unset({8, 8}, DType::f32, *stream);
  const auto multiply = [&] { launch(Matmul{.c = c, .a = a, .b = a}, *stream); };
  const auto capture = [&] { return stream->capture(multiply); };
  expect_error(ErrorKind::invalid, {"once before"}, [&] { (void)capture(); });
  multiply();
  const Numbers wanted = values(c);
  const Graph graph = capture();
  launch(Fill{.out = c}, *stream);
  stream->replay(graph);
  EXPECT_EQ(values(c), wanted);
}

TEST_F(CudaMatmul, NamesTheProductThatHasNoAlgorithm) {
  const auto stream = cuda_stream();
  const Tensor a({Shape{8, 16}, DType::bf16}, *stream), b({Shape{24, 16}, DType::bf16}, *stream);
  const Tensor c({Shape{8, 24}}, *stream);
  emulator::cublas_lt().knows_algorithms = false;
  expect_error(ErrorKind::device, {"(8, 16) and (16, 24) transposed, bf16 into f32"},
               [&] { launch(Matmul{.c = c, .a = a, .b = b, .b_transposed = true}, *stream); });
  emulator::cublas_lt().knows_algorithms = true;
}
#endif

}  // namespace
}  // namespace spool::testing
