#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/layer_norm.h"

namespace spool {
namespace cuda {
namespace {

constexpr int block_threads = 256;
constexpr int max_packs_of_lane = 8, max_packs_of_thread = 4;

template <class T>
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

  __device__ __forceinline__ void store_statistics(int64_t n, float row_mean,
                                                   float row_rstd) const {
    mean[n] = row_mean;
    rstd[n] = row_rstd;
  }
};

// The sum over a team of threads, which is a warp or a block.
template <int team>
__device__ __forceinline__ float team_sum(float x, float* scratch) {
  if constexpr (team == warp_lanes) return warp_sum(x);
  return block_sum(x, scratch);
}

// y from h, at `size` columns from c.
template <class T>
__device__ __forceinline__ void write_pack(const NormForward<T>& k, int64_t n, int64_t c,
                                           const Pack<T>& x, float mean, float rstd) {
  const Pack<T> weight = load_pack(k.weight + c);
  const Pack<T> bias = k.bias ? load_pack(k.bias + c) : Pack<T>{};
  Floats<Pack<T>::size> y;
#pragma unroll
  for (int j = 0; j < Pack<T>::size; ++j) {
    const float scaled = (to_float(x.at[j]) - mean) * rstd * to_float(weight.at[j]);
    y.at[j] = scaled + (k.bias ? to_float(bias.at[j]) : 0.0f);
  }
  store<Pack<T>::size>(k.y + n * k.C + c, y);
}

// A team keeps a row in registers, `packs` packs per thread: x is read once.
template <class T, int packs, int team>
__global__ void __launch_bounds__(block_threads, packs > 5 ? 2 : 3) forward_kept(NormForward<T> k) {
  constexpr int size = Pack<T>::size;
  SPOOL_SHARED_2D(float, scratch, 2, warp_lanes);
  const int member = static_cast<int>(threadIdx.x) % team;
  const int64_t n = int64_t{blockIdx.x} * (block_threads / team) + threadIdx.x / team;
  if (n >= k.N) return;  // a whole team returns; a team that is a block always has a row
  const T* row = k.x + n * k.C;
  const auto column = [&](int p) { return (p * team + member) * size; };
  Pack<T> x[packs];
  float sum = 0, squares = 0;
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    if (column(p) < k.C) x[p] = load_pack(row + column(p));
  }
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    if (column(p) >= k.C) continue;
#pragma unroll
    for (int j = 0; j < size; ++j) sum += to_float(x[p].at[j]);
  }
  const float mean = team_sum<team>(sum, scratch[0]) / static_cast<float>(k.C);
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    if (column(p) >= k.C) continue;
#pragma unroll
    for (int j = 0; j < size; ++j) {
      const float centred = to_float(x[p].at[j]) - mean;
      squares += centred * centred;
    }
  }
  const float variance = team_sum<team>(squares, scratch[1]) / static_cast<float>(k.C);
  const float rstd = 1 / sqrtf(variance + k.eps);
  if (member == 0) k.store_statistics(n, mean, rstd);
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    if (column(p) < k.C) write_pack(k, n, column(p), x[p], mean, rstd);
  }
}

// Rows of any length and alignment, an element at a time; x is read three times.
template <class T>
__global__ void __launch_bounds__(block_threads) forward_any(NormForward<T> k) {
  SPOOL_SHARED_2D(float, scratch, 2, warp_lanes);
  const int64_t n = blockIdx.x;
  const T* x = k.x + n * k.C;
  float sum = 0, squares = 0;
  for (int64_t c = threadIdx.x; c < k.C; c += block_threads) sum += to_float(x[c]);
  const float mean = block_sum(sum, scratch[0]) / static_cast<float>(k.C);
  for (int64_t c = threadIdx.x; c < k.C; c += block_threads) {
    const float centred = to_float(x[c]) - mean;
    squares += centred * centred;
  }
  const float variance = block_sum(squares, scratch[1]) / static_cast<float>(k.C);
  const float rstd = 1 / sqrtf(variance + k.eps);
  if (threadIdx.x == 0) k.store_statistics(n, mean, rstd);
  for (int64_t c = threadIdx.x; c < k.C; c += block_threads) {
    const float scaled = (to_float(x[c]) - mean) * rstd * to_float(k.weight[c]);
    k.y[n * k.C + c] = from_float<T>(scaled + (k.bias ? to_float(k.bias[c]) : 0.0f));
  }
}

template <class T, int packs, int team>
void launch_kept(CudaStream& stream, const NormForward<T>& k) {
  launch_kernel(stream, forward_kept<T, packs, team>,
                {.grid = dim3(unsigned(ceil_div<int64_t>(k.N, block_threads / team))),
                 .block = dim3(block_threads)},
                k);
}

// Launches with the fewest packs per thread, from `packs` up, that a row fits in.  False if a row
// needs more than max_packs.
template <class T, int team, int max_packs, int packs = 1>
bool launch_fitting(CudaStream& stream, const NormForward<T>& k) {
  if (k.C <= int64_t{packs} * team * Pack<T>::size) {
    launch_kept<T, packs, team>(stream, k);
    return true;
  }
  if constexpr (packs < max_packs) return launch_fitting<T, team, max_packs, packs + 1>(stream, k);
  return false;
}

template <class T>
void forward(CudaStream& stream, const NormForward<T>& k) {
  const bool aligned =
      packs<T>(k.x, k.C) && packs<T>(k.y, k.C) && packs<T>(k.weight, k.C) && packs<T>(k.bias, k.C);
  if (aligned && (launch_fitting<T, warp_lanes, max_packs_of_lane>(stream, k) ||
                  launch_fitting<T, block_threads, max_packs_of_thread>(stream, k))) {
    return;
  }
  launch_kernel(stream, forward_any<T>, {.grid = dim3(unsigned(k.N)), .block = dim3(block_threads)},
                k);
}

}  // namespace
}  // namespace cuda

void run(const LayerNormForward& k, CudaStream& stream) {
  if (k.x.numel() == 0) return;
  cuda::dispatch(k.x.dtype(),
                 [&](auto scalar) { forward(stream, cuda::NormForward<decltype(scalar)>(k)); });
}

}  // namespace spool
