#pragma once

// RMS norm (kernels/rms_norm.h) of each query and key head of packed q, k and v.  x (B, T, (H + 2
// Hkv) D) is packed as in kernels/attention.h; a row is one of the H + Hkv first heads of a token,
// of D numbers.  Query heads have the weight `query`, key heads the weight `key`, (D) each, and
// values are copied:
//   r[n,h] = 1 / sqrt(1/D sum_d x[n,h,d]^2 + eps)      y[n,h,d] = x[n,h,d] r[n,h] weight[d]
// Backward is that of kernels/rms_norm.h for each row; the gradient of a weight is summed over its
// heads and the tokens, and that of values is passed on.  dx may be dy; otherwise what is written
// shares no memory with other arguments.  On cuda D is at most 256.

#include "spool/kernels/attention.h"

namespace spool {

struct HeadNormForward {
  static constexpr const char* name = "head_norm_forward";
  View y, r;           // of the shape of x; (N, H + Hkv), f32 (f64 where x is)
  View x, query, key;  // (N, (H + 2 Hkv) D), (D), (D), of one type
  Heads heads = {};
  double eps = 1e-6;
  void check_arguments() const;
  Cost cost() const {
    return {4.0 * static_cast<double>(x.numel()), bytes(y, r, x, query, key),
            accumulator(x.dtype())};
  }
};

struct HeadNormBackward {
  static constexpr const char* name = "head_norm_backward";
  Grad dx;                 // type of x
  Grad dquery, dkey;       // (D), type of x or f32; each of the three may be absent
  View dy, x, query, key;  // as in forward
  View r;
  Heads heads = {};
  View workspace = {};
  void check_arguments() const;
  Cost cost() const {
    return {9.0 * static_cast<double>(x.numel()), bytes(dx, dquery, dkey, dy, x, query, key, r),
            accumulator(x.dtype())};
  }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

// The extents of both kernels' arguments: N tokens of `packed` heads, of which the first
// `normed` have a norm.
struct HeadNormExtents {
  int64_t N = 0, H = 0, normed = 0, packed = 0, D = 0;
  HeadNormExtents(const View& x, const Heads& heads)
      : H(heads.query),
        normed(heads.query + heads.key),
        packed(heads.query + 2 * heads.key),
        D(x.shape().row() / packed) {
    N = x.shape().rows();
  }
  int64_t row() const { return packed * D; }
};

void run(const HeadNormForward&, CpuStream&);
void run(const HeadNormBackward&, CpuStream&);
void run(const HeadNormForward&, CudaStream&);
void run(const HeadNormBackward&, CudaStream&);

}  // namespace spool
