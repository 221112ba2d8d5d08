#pragma once

// Multi-head attention over a packed tensor, causal or of all tokens.  No T x T matrix is formed:
// keys are visited tile by tile under a running maximum (Milakov, Gimelshein 2018; Dao et al.
// 2022).
//
// qkv (B, T, (H + 2 Hkv) D) has, for each token, H query heads, then Hkv key heads, then Hkv value
// heads, of D numbers each; query head h reads key and value head h / (H / Hkv).  Per b and h:
//   s[i,j] = scale * sum_d q[i,d] k[j,d]     for first[b,i] <= j <= i, or with Mask::none all j
//   lse[i] = log sum_j exp(s[i,j])           y[i,d] = sum_j exp(s[i,j] - lse[i]) v[j,d]
// Backward, with p = exp(s - lse) and delta[i] = sum_d dy[i,d] y[i,d]:
//   dv[j,d] = sum_i p[i,j] dy[i,d]           ds[i,j] = p[i,j] (sum_d dy[i,d] v[j,d] - delta[i])
//   dq[i,d] = scale sum_j ds[i,j] k[j,d]     dk[j,d] = scale sum_i ds[i,j] q[i,d]
// summed over the query heads that share a key head.  Sums are formed in f32 (f64 for f64).  Where
// bf16 is multiplied in tiles, p and ds are rounded to bf16 before they are factors.
//
// `first` is the first key that a query sees, for texts packed into one row; absent, it is 0.  The
// caller ensures that 0 <= first[b,i] <= i.  What is written shares no memory with other arguments.

#include "spool/kernels/launch.h"
#include "spool/runtime/names.h"

namespace spool {

// Numbers of heads.  D is the last extent of y divided by H.
struct Heads {
  int64_t query = 1;  // H
  int64_t key = 1;    // Hkv, a divisor of H
  bool operator==(const Heads&) const = default;
};

// Which keys a query sees: those of its own token and of earlier ones, or all.
enum class Mask : uint8_t { causal, none };
template <>
inline constexpr std::array enumerator_names<Mask>{"causal", "none"};

// The order of backward's sums: always the same, for the same bits every time; or any, which takes
// less memory where cuDNN computes it, on most GPUs (kernels/attention_sizes.h).
enum class SumOrder : uint8_t { fixed, any };
template <>
inline constexpr std::array enumerator_names<SumOrder>{"fixed", "any"};

// The extents of packed q, k and v and of y; throws if they do not fit each other.
struct AttentionExtents {
  int64_t B = 0, T = 0, H = 0, Hkv = 0, D = 0;

  AttentionExtents(const View& qkv, const View& y, Heads heads);
  int64_t group() const { return H / Hkv; }
  int64_t packed() const { return H + 2 * Hkv; }
  int64_t key(int64_t h) const { return H + h; }  // index among all heads of a token
  int64_t value(int64_t h) const { return H + Hkv + h; }
};

// Cost of an exponential in flops.
constexpr double exponential_flops = 20;

struct AttentionForward {
  static constexpr const char* name = "attention_forward";
  View y, lse;  // (B, T, H D); f32 (B, H, T), f64 where y is
  View qkv;     // (B, T, (H + 2 Hkv) D)
  Heads heads = {};
  double scale = 1;  // usually 1 / sqrt(D)
  Mask mask = Mask::causal;
  View first = {};  // i32 (B, T), or absent; with Mask::causal
  View workspace = {};

  void check_arguments() const;
  Cost cost() const;
  Cost cost(const CudaArchitecture&) const;
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

struct AttentionBackward {
  static constexpr const char* name = "attention_backward";
  Grad dqkv;             // (B, T, (H + 2 Hkv) D), type of qkv or f32
  View dy, qkv, y, lse;  // as in forward
  Heads heads = {};
  double scale = 1;
  Mask mask = Mask::causal;
  View first = {};  // as in forward
  SumOrder order = SumOrder::fixed;
  int64_t parts = 1;  // on cuda: how cuDNN's is cut (kernels/attention_sizes.h)
  View workspace = {};

  void check_arguments() const;
  Cost cost() const;
  Cost cost(const CudaArchitecture&) const;
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

void run(const AttentionForward&, CpuStream&);
void run(const AttentionBackward&, CpuStream&);
void run(const AttentionForward&, CudaStream&);
void run(const AttentionBackward&, CudaStream&);

}  // namespace spool
