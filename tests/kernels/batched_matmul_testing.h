#pragma once

// Products of many matrices, by the kernel and by nested loops in f64.

#include "spool/kernels/batched_matmul.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

struct BatchedCase {
  int64_t count, M, N, K;
  bool a_shared = false, b_shared = false;
  bool a_transposed = false, b_transposed = false, accumulate = false;

  friend std::ostream& operator<<(std::ostream& out, const BatchedCase& c) {
    return out << c.count << " times " << c.M << " by " << c.K << " by " << c.N
               << (c.a_shared ? ", one a" : "") << (c.b_shared ? ", one b" : "")
               << (c.a_transposed ? ", a transposed" : "")
               << (c.b_transposed ? ", b transposed" : "") << (c.accumulate ? ", added" : "");
  }
};

// One of 24 forms of a product: not both factors are one matrix for all.
inline BatchedCase in_form(BatchedCase c, int i) {
  c.a_transposed = (i & 1) != 0, c.b_transposed = (i & 2) != 0, c.accumulate = (i & 4) != 0;
  c.a_shared = (i & 24) == 8, c.b_shared = (i & 24) == 16;
  return c;
}
constexpr int batched_forms = 24;

struct BatchedTypes {
  DType in, out;
};

struct BatchedTensors {
  Tensor a, b, c;

  BatchedTensors(const BatchedCase& p, const BatchedTypes& t, Stream& stream)
      : a(matrices(p.a_shared ? 0 : p.count, p.M, p.K, p.a_transposed, t.in, stream, 1)),
        b(matrices(p.b_shared ? 0 : p.count, p.K, p.N, p.b_transposed, t.in, stream, 2)) {
    const Shape shape{p.count, p.M, p.N};
    c = p.accumulate ? normal(shape, t.out, stream, 3) : unset(shape, t.out, stream);
  }
  BatchedMatmul kernel(const BatchedCase& p) const {
    return {.c = Grad(c, p.accumulate),
            .a = a,
            .b = b,
            .a_transposed = p.a_transposed,
            .b_transposed = p.b_transposed};
  }

 private:
  static Tensor matrices(int64_t count, int64_t rows, int64_t columns, bool transposed, DType type,
                         Stream& stream, uint64_t seed) {
    if (transposed) std::swap(rows, columns);
    const Shape shape = count > 0 ? Shape{count, rows, columns} : Shape{rows, columns};
    if (shape.numel() == 0) return Tensor({shape, type}, stream);
    return normal(shape, type, stream, seed);
  }
};

inline Numbers batched_product(const BatchedCase& p, const BatchedTypes& t, Stream& stream) {
  const BatchedTensors tensors(p, t, stream);
  launch(tensors.kernel(p), stream);
  return values(tensors.c);
}

inline Numbers batched_reference(const BatchedCase& p, const BatchedTypes& t, Stream& stream) {
  const BatchedTensors tensors(p, t, stream);
  const Numbers a = values(tensors.a), b = values(tensors.b);
  Numbers c = p.accumulate ? values(tensors.c) : Numbers(static_cast<size_t>(p.count * p.M * p.N));
  for (int64_t i = 0; i < p.count; ++i) {
    const int64_t a_at = p.a_shared ? 0 : i * p.M * p.K, b_at = p.b_shared ? 0 : i * p.K * p.N;
    for (int64_t m = 0; m < p.M; ++m) {
      for (int64_t n = 0; n < p.N; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < p.K; ++k) {
          sum += at(a, a_at + (p.a_transposed ? k * p.M + m : m * p.K + k)) *
                 at(b, b_at + (p.b_transposed ? n * p.K + k : k * p.N + n));
        }
        c[static_cast<size_t>((i * p.M + m) * p.N + n)] += sum;
      }
    }
  }
  return c;
}

}  // namespace spool::testing
