#pragma once

// Products of many matrices: c[i][m,n] (+)= sum_k a[i][m,k] * b[i][k,n]; the matrices of either
// factor may be stored transposed, and one of the factors may be a single matrix, for all i.
// Types: a and b have one type; c has it too, or is f32 if they are bf16.  Sums are formed in f32
// (f64 for f64).  B.. is one or two dimensions, or none.  c shares no memory with other arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct BatchedMatmul {
  static constexpr const char* name = "batched_matmul";
  Grad c;     // (B.., M, N)
  View a, b;  // (B.., M, K) or (M, K), (B.., K, N) or (K, N); transposed: (.., K, M), (.., N, K)
  bool a_transposed = false, b_transposed = false;
  View workspace = {};

  void check_arguments() const;
  // The number of products.
  int64_t count() const {
    const Shape& s = c.view.shape();
    return (s.rank() > 2 ? s[-3] : 1) * (s.rank() > 3 ? s[-4] : 1);
  }
  int64_t M() const { return c.view.shape()[-2]; }
  int64_t N() const { return c.view.shape()[-1]; }
  int64_t K() const { return a.shape()[a_transposed ? -2 : -1]; }
  Cost cost() const {
    const double products = static_cast<double>(c.view.numel()) * static_cast<double>(K());
    return {2 * products, bytes(c, a, b), a.dtype()};
  }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

void run(const BatchedMatmul&, CpuStream&);
void run(const BatchedMatmul&, CudaStream&);

}  // namespace spool
