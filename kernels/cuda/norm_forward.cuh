#pragma once

// Forward of the norms of rows: of layer_norm, which is centred (subtracts the mean); and of
// rms_norm, which is not, and has neither a mean nor a bias.

#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/rms_norm.h"

namespace spool::cuda {

constexpr int norm_threads = 256;
constexpr int max_packs_of_lane = 8, max_packs_of_thread = 4;

template <class T, bool centred>
struct NormForward {
  T* y;
  float *mean, *rstd;
  const T *x, *weight, *bias;
  int64_t N, C;
  float eps;

  explicit NormForward(const LayerNormForward& k)
      : y(k.y.as<T>()),
        mean(k.mean.as<float>()),
        rstd(k.rstd.as<float>()),
        x(k.x.as<T>()),
        weight(k.weight.as<T>()),
        bias(k.bias.as<T>()),
        N(k.x.shape().rows()),
        C(k.x.shape().row()),
        eps(static_cast<float>(k.eps)) {}
  explicit NormForward(const RmsNormForward& k)
      : y(k.y.as<T>()),
        mean(nullptr),
        rstd(k.r.as<float>()),
        x(k.x.as<T>()),
        weight(k.weight.as<T>()),
        bias(nullptr),
        N(k.x.shape().rows()),
        C(k.x.shape().row()),
        eps(static_cast<float>(k.eps)) {}

  __device__ __forceinline__ bool has_bias() const { return centred && bias; }
  __device__ __forceinline__ void store_statistics(int64_t n, float row_mean,
                                                   float row_rstd) const {
    if constexpr (centred) mean[n] = row_mean;
    rstd[n] = row_rstd;
  }
};

// The sum over a team of threads, which is a warp or a block.
template <int team>
__device__ __forceinline__ float team_sum(float x, float* scratch) {
  if constexpr (team == warp_lanes) return warp_sum(x);
  return block_sum(x, scratch);
}

// Writes `size` columns of y, from c on, given h.
template <class T, bool centred>
__device__ __forceinline__ void write_pack(const NormForward<T, centred>& k, int64_t n, int64_t c,
                                           const Pack<T>& x, float mean, float rstd) {
  const Pack<T> weight = load_pack(k.weight + c);
  const Pack<T> bias = k.has_bias() ? load_pack(k.bias + c) : Pack<T>{};
  Floats<Pack<T>::size> y;
#pragma unroll
  for (int j = 0; j < Pack<T>::size; ++j) {
    const float scaled = (to_float(x.at[j]) - mean) * rstd * to_float(weight.at[j]);
    y.at[j] = scaled + (k.has_bias() ? to_float(bias.at[j]) : 0.0f);
  }
  store<Pack<T>::size>(k.y + n * k.C + c, y);
}

// A team keeps a row in registers, `packs` packs per thread: x is read once.
template <class T, int packs, int team, bool centred>
__global__ void __launch_bounds__(norm_threads, packs > 5 ? 2 : 3)
    forward_kept(NormForward<T, centred> k) {
  constexpr int size = Pack<T>::size;
  SPOOL_SHARED_2D(float, scratch, 2, warp_lanes);
  const int member = static_cast<int>(threadIdx.x) % team;
  const int64_t n = int64_t{blockIdx.x} * (norm_threads / team) + threadIdx.x / team;
  if (n >= k.N) return;  // a whole team returns; a team that is a block always has a row
  const T* row = k.x + n * k.C;
  const auto column = [&](int p) { return (p * team + member) * size; };
  uint4 x[packs];
  const auto element = [&](int p, int j) { return to_float(pack_of<T>(x[p]).at[j]); };
  float mean = 0, squares = 0;
#pragma unroll
  for (int p = 0; p < packs; ++p) x[p] = load_bits(row + column(p), column(p) < k.C);
  if constexpr (centred) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      if (column(p) >= k.C) continue;
#pragma unroll
      for (int j = 0; j < size; ++j) sum += element(p, j);
    }
    mean = team_sum<team>(sum, scratch[0]) / static_cast<float>(k.C);
  }
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    if (column(p) >= k.C) continue;
#pragma unroll
    for (int j = 0; j < size; ++j) {
      const float apart = element(p, j) - mean;
      squares += apart * apart;
    }
  }
  const float variance = team_sum<team>(squares, scratch[1]) / static_cast<float>(k.C);
  const float rstd = 1 / sqrtf(variance + k.eps);
  if (member == 0) k.store_statistics(n, mean, rstd);
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    if (column(p) < k.C) write_pack(k, n, column(p), pack_of<T>(x[p]), mean, rstd);
  }
}

// Rows of any length and alignment, an element at a time; x is read for each sum.
template <class T, bool centred>
__global__ void __launch_bounds__(norm_threads) forward_any(NormForward<T, centred> k) {
  SPOOL_SHARED_2D(float, scratch, 2, warp_lanes);
  const int64_t n = blockIdx.x;
  const T* x = k.x + n * k.C;
  float mean = 0, squares = 0;
  if constexpr (centred) {
    float sum = 0;
    for (int64_t c = threadIdx.x; c < k.C; c += norm_threads) sum += to_float(x[c]);
    mean = block_sum(sum, scratch[0]) / static_cast<float>(k.C);
  }
  for (int64_t c = threadIdx.x; c < k.C; c += norm_threads) {
    const float apart = to_float(x[c]) - mean;
    squares += apart * apart;
  }
  const float variance = block_sum(squares, scratch[1]) / static_cast<float>(k.C);
  const float rstd = 1 / sqrtf(variance + k.eps);
  if (threadIdx.x == 0) k.store_statistics(n, mean, rstd);
  for (int64_t c = threadIdx.x; c < k.C; c += norm_threads) {
    const float scaled = (to_float(x[c]) - mean) * rstd * to_float(k.weight[c]);
    k.y[n * k.C + c] = from_float<T>(scaled + (k.has_bias() ? to_float(k.bias[c]) : 0.0f));
  }
}

template <class T, int packs, int team, bool centred>
void launch_kept_forward(CudaStream& stream, const NormForward<T, centred>& k) {
  launch_kernel(stream, forward_kept<T, packs, team, centred>,
                {.grid = dim3(unsigned(ceil_div<int64_t>(k.N, norm_threads / team))),
                 .block = dim3(norm_threads)},
                k);
}

// Launches with the fewest packs per thread, from `packs` up, that a row fits in.  False if a row
// needs more than max_packs.
template <int team, int max_packs, int packs = 1, class T, bool centred>
bool launch_fitting_forward(CudaStream& stream, const NormForward<T, centred>& k) {
  if (k.C <= int64_t{packs} * team * Pack<T>::size) {
    launch_kept_forward<T, packs, team>(stream, k);
    return true;
  }
  if constexpr (packs < max_packs)
    return launch_fitting_forward<team, max_packs, packs + 1>(stream, k);
  return false;
}

template <class T, bool centred>
void norm_forward(CudaStream& stream, const NormForward<T, centred>& k) {
  const bool aligned =
      packs<T>(k.x, k.C) && packs<T>(k.y, k.C) && packs<T>(k.weight, k.C) && packs<T>(k.bias, k.C);
  if (aligned && (launch_fitting_forward<warp_lanes, max_packs_of_lane>(stream, k) ||
                  launch_fitting_forward<norm_threads, max_packs_of_thread>(stream, k))) {
    return;
  }
  launch_kernel(stream, forward_any<T, centred>,
                {.grid = dim3(unsigned(k.N)), .block = dim3(norm_threads)}, k);
}

}  // namespace spool::cuda
