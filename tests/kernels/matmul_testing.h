#pragma once

// Products of matrices, computed by the kernel and by nested loops in f64.

#include <cmath>
#include <limits>

#include "spool/kernels/cpu/matmul.h"
#include "spool/kernels/matmul.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

struct MatmulExtent {
  int64_t M, N, K;
};

struct MatmulTypes {
  DType in, out;
};
constexpr MatmulTypes all_matmul_types[] = {{DType::f64, DType::f64},
                                            {DType::f32, DType::f32},
                                            {DType::bf16, DType::bf16},
                                            {DType::bf16, DType::f32}};

struct MatmulForm {
  bool a_transposed, b_transposed, bias, accumulate;
  double alpha = 1;
};

// One of 16 forms, by the bits of i.
inline MatmulForm matmul_form(int i) {
  return {(i & 1) != 0, (i & 2) != 0, (i & 4) != 0, (i & 8) != 0};
}

constexpr size_t matmul_budget = size_t{256} << 20;

// Random numbers that every type holds exactly.
inline Numbers bf16_numbers(int64_t n, uint64_t seed) {
  Random random(seed);
  Numbers all;
  for (int64_t i = 0; i < n; ++i) {
    all.push_back(static_cast<float>(bf16(static_cast<float>(random.normal()))));
  }
  return all;
}

// A matrix of `rows` rows, or its transpose.
inline Tensor matrix(const Numbers& from, int64_t rows, int64_t columns, bool transposed,
                     DType type, Stream& stream) {
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

// Columns between others, which are NaN.
struct BetweenOthers {
  static constexpr int64_t before = 3, after = 2;
  Tensor all;
  Range columns;

  BetweenOthers(const Tensor& matrix, Stream& stream)
      : columns{before, before + matrix.shape().row()} {
    const Numbers from = values(matrix);
    const int64_t rows = matrix.shape().rows(), width = columns.end + after;
    Numbers to(static_cast<size_t>(rows * width), std::numeric_limits<double>::quiet_NaN());
    for (int64_t i = 0; i < std::ssize(from); ++i) {
      const int64_t row = i / columns.size(), column = i % columns.size();
      to[static_cast<size_t>(row * width + before + column)] = at(from, i);
    }
    all = testing::matrix(to, rows, width, /*transposed=*/false, matrix.dtype(), stream);
  }
  View view() const { return columns_of(all, columns); }
  int64_t row() const { return all.shape().row(); }
  // The columns; throws unless the others are as they were.
  Numbers numbers() const {
    Numbers mine;
    const Numbers whole = values(all);
    for (int64_t i = 0; i < std::ssize(whole); ++i) {
      const int64_t column = i % row();
      const bool inside = column >= columns.begin && column < columns.end;
      if (inside) mine.push_back(at(whole, i));
      check(inside || std::isnan(at(whole, i)), "column ", column, " was written");
    }
    return mine;
  }
};

// How to compute a product: by the kernel, or by the plain loops that replace oneDNN.
using Multiply = void (*)(const Matmul&, Stream&);
inline void by_launch(const Matmul& k, Stream& stream) { launch(k, stream); }
inline void by_plain_loops(const Matmul& k, Stream& stream) {
  auto& cpu = static_cast<CpuStream&>(stream);
  cpu.enqueue([k, &cpu] { cpu::multiply_plain(k, cpu::tiling(k), cpu); });
}

struct MatmulProblem {
  MatmulExtent extent;
  Numbers a, b, bias, before, product;

  explicit MatmulProblem(const MatmulExtent& e)
      : extent(e),
        a(bf16_numbers(e.M * e.K, 1)),
        b(bf16_numbers(e.K * e.N, 2)),
        bias(bf16_numbers(e.N, 3)),
        before(bf16_numbers(e.M * e.N, 4)) {}

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

  Numbers wanted(const MatmulForm& f) const {
    Numbers all = product;
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] *= f.alpha;
      if (f.bias) all[i] += bias[i % bias.size()];
      if (f.accumulate) all[i] += before[i];
    }
    return all;
  }

  // As run(), with each matrix between other columns.
  Numbers run_in_wider(const MatmulForm& f, const MatmulTypes& t, Multiply multiply,
                       Stream& stream) const {
    const auto [M, N, K] = extent;
    const BetweenOthers left(matrix(a, M, K, f.a_transposed, t.in, stream), stream),
        right(matrix(b, K, N, f.b_transposed, t.in, stream), stream),
        c(matrix(before, M, N, false, t.out, stream), stream);
    multiply({.c = Grad(c.view(), f.accumulate),
              .a = left.view(),
              .b = right.view(),
              .a_transposed = f.a_transposed,
              .b_transposed = f.b_transposed,
              .alpha = f.alpha,
              .a_row = left.row(),
              .b_row = right.row(),
              .c_row = c.row()},
             stream);
    return c.numbers();
  }

  Tensor run(const MatmulForm& f, const MatmulTypes& t, Multiply multiply, Stream& stream) const {
    const auto [M, N, K] = extent;
    const Tensor left = matrix(a, M, K, f.a_transposed, t.in, stream);
    const Tensor right = matrix(b, K, N, f.b_transposed, t.in, stream);
    const Tensor added = matrix(bias, 1, N, false, t.in, stream);
    const Tensor c =
        f.accumulate ? matrix(before, M, N, false, t.out, stream) : unset({M, N}, t.out, stream);
    multiply({.c = Grad(c, f.accumulate),
              .a = left,
              .b = right,
              .bias = f.bias ? View(added) : View(),
              .a_transposed = f.a_transposed,
              .b_transposed = f.b_transposed},
             stream);
    return c;
  }
};

inline std::string describe(const MatmulExtent& e, const MatmulForm& f, const MatmulTypes& t) {
  return sentence(e.M, " by ", e.K, " by ", e.N, ", ", name(t.in), " into ", name(t.out),
                  f.a_transposed ? ", a transposed" : "", f.b_transposed ? ", b transposed" : "",
                  f.bias ? ", with bias" : "", f.accumulate ? ", added" : "", ", times ", f.alpha);
}
inline std::string describe(const MatmulProblem& p, const MatmulForm& f, const MatmulTypes& t) {
  return describe(p.extent, f, t);
}

}  // namespace spool::testing
