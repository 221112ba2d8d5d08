#pragma once

// Matrix product: c[m,n] (+)= sum_k a[m,k] * b[k,n] + bias[n]; a factor may be stored transposed.
// Types: a and b have one type; c has it too, or is f32 if they are bf16.  Sums are formed in f32
// (f64 for f64).  All dimensions but the last count as rows.  c shares no memory with other
// arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct Matmul {
  static constexpr const char* name = "matmul";
  Grad c;          // (M, N)
  View a, b;       // (M, K), (K, N); transposed: (K, M), (N, K)
  View bias = {};  // (N), of the type of b
  bool a_transposed = false, b_transposed = false;
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
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

void run(const Matmul&, CpuStream&);
void run(const Matmul&, CudaStream&);

}  // namespace spool
