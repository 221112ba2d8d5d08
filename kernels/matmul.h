#pragma once

// Matrix product: c[m,n] (+)= alpha sum_k a[m,k] * b[k,n] + bias[n]; a factor may be stored
// transposed.  Types: a and b have one type; c has it too, or is f32 if they are bf16.  Sums are
// formed in f32 (f64 for f64).  All dimensions but the last count as rows.  c shares no memory with
// other arguments.
//
// A matrix may be some columns of a wider one (columns_of()).  With a bias, c is whole and alpha 1.

#include "spool/kernels/launch.h"

namespace spool {

struct Matmul {
  static constexpr const char* name = "matmul";
  Grad c;          // (M, N)
  View a, b;       // (M, K), (K, N); transposed: (K, M), (N, K)
  View bias = {};  // (N), of the type of b
  bool a_transposed = false, b_transposed = false;
  double alpha = 1;
  // Elements in memory from one row of a, b or c to the next; 0: those of a row.
  int64_t a_row = 0, b_row = 0, c_row = 0;
  View workspace = {};

  void check_arguments() const;
  int64_t M() const { return c.view.shape().rows(); }
  int64_t N() const { return c.view.shape().row(); }
  int64_t K() const { return a_transposed ? a.shape().rows() : a.shape().row(); }
  Cost cost() const {
    const double products =
        static_cast<double>(M()) * static_cast<double>(N()) * static_cast<double>(K());
    return {2 * products, bytes(c, a, b, bias), a.dtype()};
  }
  int64_t a_stride() const { return a_row ? a_row : a.shape().row(); }
  int64_t b_stride() const { return b_row ? b_row : b.shape().row(); }
  int64_t c_stride() const { return c_row ? c_row : c.view.shape().row(); }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

// Some columns of a matrix, in place; its rows remain as far apart as they are.
inline View columns_of(const View& all, Range some) {
  const auto bytes = static_cast<int64_t>(size_of(all.dtype()));
  return {all.data() + some.begin * bytes, {Shape{all.shape().rows(), some.size()}, all.dtype()}};
}

void run(const Matmul&, CpuStream&);
void run(const Matmul&, CudaStream&);

}  // namespace spool
