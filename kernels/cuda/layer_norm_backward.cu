#include "spool/kernels/cuda/column_sums.cuh"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/layer_norm_sizes.h"

namespace spool {
namespace cuda {
namespace {

constexpr int max_threads = 256, max_warps = max_threads / warp_lanes;
// Packs of x, and of dy, that a thread loads at a time, from one row or from several.
constexpr int packs_at_once = 4;

template <class T>
struct NormBackward {
  Sink<T> dx;              // null if not needed
  float *dweight, *dbias;  // partial sums of the first group; null if not needed
  int64_t stride;          // from group to group
  const T *dy, *x, *weight;
  const float *mean, *rstd;
  int64_t N, C;
  int64_t rows, groups;  // rows in a group, number of groups

  explicit NormBackward(const LayerNormBackward& k)
      : dx(k.dx),
        dweight(k.dweight ? k.workspace.as<float>() : nullptr),
        dbias(k.dbias ? k.workspace.as<float>() + (k.dweight ? k.x.shape().row() : 0) : nullptr),
        stride(k.partial_sums() * k.x.shape().row()),
        dy(k.dy.as<T>()),
        x(k.x.as<T>()),
        weight(k.weight.as<T>()),
        mean(k.mean.as<float>()),
        rstd(k.rstd.as<float>()),
        N(k.x.shape().rows()),
        C(k.x.shape().row()),
        rows(LayerNormGroups(N, C, k.x.dtype()).rows),
        groups(LayerNormGroups(N, C, k.x.dtype()).count) {}
};

template <int count>
struct alignas(count < 4 ? 8 : 16) ManySums {
  float at[count];
};

// n sums over a warp, n a power of two: lane l gets the sum of x.at[l / (32 / n)].  Each step
// halves the numbers that a lane has.
template <int n>
__device__ __forceinline__ float warp_sums(ManySums<n> x) {
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  int apart = warp_lanes / 2;
#pragma unroll
  for (int half = n / 2; half > 0; half /= 2, apart /= 2) {
    const bool upper = lane & apart;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float kept = upper ? x.at[i + half] : x.at[i];
      const float given = upper ? x.at[i] : x.at[i + half];
      x.at[i] = kept + __shfl_xor_sync(all_lanes, given, apart);
    }
  }
#pragma unroll
  for (; apart > 0; apart /= 2) x.at[0] += __shfl_xor_sync(all_lanes, x.at[0], apart);
  return x.at[0];
}

// n sums over a block of at most eight warps; every thread gets all.  `scratch` is in shared
// memory, and may be reused after the next barrier.
template <int n>
__device__ __forceinline__ ManySums<n> block_sums(const ManySums<n>& x, ManySums<n>* scratch) {
  constexpr int lanes_of_sum = warp_lanes / n;
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const float sum = warp_sums(x);
  if (lane % lanes_of_sum == 0) scratch[threadIdx.x / warp_lanes].at[lane / lanes_of_sum] = sum;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  ManySums<n> all = {};
  for (int w = 0; w < warps; ++w) {
#pragma unroll
    for (int i = 0; i < n; ++i) all.at[i] += scratch[w].at[i];
  }
  return all;
}

// A thread's part: `packs` packs of columns, the same in each of several rows at a time.  Elements
// beyond the rows and the columns are zero.
template <class T, int packs>
struct NormPiece {
  static constexpr int size = Pack<T>::size, at_once = packs_at_once / packs;

  const NormBackward<T>& k;
  Pack<T> weight[packs], x[at_once][packs], dy[at_once][packs];
  float mean[at_once], rstd[at_once];
  Floats<size> dweight[packs] = {}, dbias[packs] = {};

  __device__ __forceinline__ explicit NormPiece(const NormBackward<T>& all) : k(all) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      weight[p] = column(p) < k.C ? load_pack(k.weight + column(p)) : Pack<T>{};
    }
  }
  __device__ __forceinline__ int column(int p) const {
    return static_cast<int>(p * blockDim.x + threadIdx.x) * size;
  }
  __device__ __forceinline__ float h(int r, int p, int j) const {
    return (to_float(x[r][p].at[j]) - mean[r]) * rstd[r];
  }
  __device__ __forceinline__ float g(int r, int p, int j) const {
    return to_float(dy[r][p].at[j]) * to_float(weight[p].at[j]);
  }

  __device__ __forceinline__ void load_rows(int64_t first, int64_t end) {
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
      const int64_t n = first + r;
      mean[r] = n < end ? __ldg(k.mean + n) : 0.0f;
      rstd[r] = n < end ? __ldg(k.rstd + n) : 0.0f;
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        const bool there = n < end && column(p) < k.C;
        x[r][p] = there ? load_pack(k.x + n * k.C + column(p)) : Pack<T>{};
        dy[r][p] = there ? load_pack_written(k.dy + n * k.C + column(p)) : Pack<T>{};
      }
    }
  }
  // Adds to dweight and dbias; returns the sums of g, then those of g h.
  __device__ __forceinline__ ManySums<2 * at_once> add_rows() {
    ManySums<2 * at_once> sums = {};
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
#pragma unroll
      for (int p = 0; p < packs; ++p) {
#pragma unroll
        for (int j = 0; j < size; ++j) {
          const float at = to_float(dy[r][p].at[j]);
          dweight[p].at[j] += at * h(r, p, j);
          dbias[p].at[j] += at;
          sums.at[r] += g(r, p, j);
          sums.at[at_once + r] += g(r, p, j) * h(r, p, j);
        }
      }
    }
    return sums;
  }
  __device__ __forceinline__ void write_dx(int64_t first, int64_t end,
                                           const ManySums<2 * at_once>& sums) const {
    const float share = 1 / static_cast<float>(k.C);
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
      const float mean_g = sums.at[r] * share, mean_gh = sums.at[at_once + r] * share;
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        if (first + r >= end || column(p) >= k.C) continue;
        Floats<size> dx;
#pragma unroll
        for (int j = 0; j < size; ++j) {
          dx.at[j] = rstd[r] * (g(r, p, j) - mean_g - h(r, p, j) * mean_gh);
        }
        k.dx.put((first + r) * k.C + column(p), dx);
      }
    }
  }
  __device__ __forceinline__ void write_partials(int64_t group) const {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      if (column(p) >= k.C) continue;
      if (k.dweight) store<size>(k.dweight + group * k.stride + column(p), dweight[p]);
      if (k.dbias) store<size>(k.dbias + group * k.stride + column(p), dbias[p]);
    }
  }
};

// A block computes a group of rows, with columns spread over its threads: x and dy are read once.
template <class T, int packs>
__global__ void __launch_bounds__(max_threads, packs == 1 ? 2 : 1)
    backward_kept(NormBackward<T> k) {
  using Part = NormPiece<T, packs>;
  SPOOL_SHARED_2D(ManySums<2 * Part::at_once>, scratch, 2, max_warps);
  Part piece(k);
  const int64_t begin = blockIdx.x * k.rows;
  const int64_t end = begin + k.rows < k.N ? begin + k.rows : k.N;
  int turn = 0;
  for (int64_t n = begin; n < end; n += Part::at_once, turn ^= 1) {
    piece.load_rows(n, end);
    const auto sums = piece.add_rows();
    if (k.dx.data) piece.write_dx(n, end, block_sums(sums, scratch[turn]));
  }
  piece.write_partials(blockIdx.x);
}

// dx of rows of any length and alignment, an element at a time.
template <class T>
__global__ void __launch_bounds__(max_threads) backward_any(NormBackward<T> k) {
  SPOOL_SHARED_2D(float, scratch, 2, warp_lanes);
  const int64_t n = blockIdx.x, row = n * k.C;
  const float mean = k.mean[n], rstd = k.rstd[n], count = static_cast<float>(k.C);
  const auto g = [&](int64_t c) { return to_float(k.dy[row + c]) * to_float(k.weight[c]); };
  const auto h = [&](int64_t c) { return (to_float(k.x[row + c]) - mean) * rstd; };
  float sum_g = 0, sum_gh = 0;
  for (int64_t c = threadIdx.x; c < k.C; c += max_threads) {
    sum_g += g(c);
    sum_gh += g(c) * h(c);
  }
  const float mean_g = block_sum(sum_g, scratch[0]) / count;
  const float mean_gh = block_sum(sum_gh, scratch[1]) / count;
  for (int64_t c = threadIdx.x; c < k.C; c += max_threads) {
    k.dx.put(row + c, Floats<1>{rstd * (g(c) - mean_g - h(c) * mean_gh)});
  }
}

template <class T>
struct EachDweight {
  const T *dy, *x;
  const float *mean, *rstd;
  int64_t C;
  template <int width>
  __device__ Floats<width> at(int64_t n, int64_t c) const {
    Floats<width> product = load<width>(dy + n * C + c);
    const Floats<width> value = load<width>(x + n * C + c);
#pragma unroll
    for (int k = 0; k < width; ++k) product.at[k] *= (value.at[k] - mean[n]) * rstd[n];
    return product;
  }
};

// For rows that do not fit a block.  The parameters' sums come first, as dx may overwrite dy.
template <class T>
void backward_in_turn(CudaStream& stream, const LayerNormBackward& k, const NormBackward<T>& all) {
  const bool wide = packs<T>(all.dy, all.C) && packs<T>(all.x, all.C);
  float* partials = k.workspace.as<float>();
  if (k.dweight) {
    const EachDweight<T> each{
        .dy = all.dy, .x = all.x, .mean = all.mean, .rstd = all.rstd, .C = all.C};
    sum_columns<T>(stream, each, all.N, k.dweight, partials, wide);
  }
  if (k.dbias) {
    const EachValue<T> each{.x = all.dy, .C = all.C};
    sum_columns<T>(stream, each, all.N, k.dbias, partials, wide);
  }
  if (!k.dx || k.x.numel() == 0) return;
  launch_kernel(stream, backward_any<T>,
                {.grid = dim3(unsigned(all.N)), .block = dim3(max_threads)}, all);
}

// Launches one pass, with the fewest packs per thread that a row fits in.  False if a row does not
// fit a block.
template <class T, int packs = 1>
bool launch_kept(CudaStream& stream, const NormBackward<T>& k) {
  const int64_t threads = ceil_div<int64_t>(k.C, int64_t{packs} * Pack<T>::size);
  if (threads <= max_threads) {
    const auto block = unsigned(ceil_div<int64_t>(threads, warp_lanes) * warp_lanes);
    launch_kernel(stream, backward_kept<T, packs>,
                  {.grid = dim3(unsigned(k.groups)), .block = dim3(block)}, k);
    return true;
  }
  if constexpr (packs < packs_at_once) return launch_kept<T, 2 * packs>(stream, k);
  return false;
}

template <class T>
void backward(CudaStream& stream, const LayerNormBackward& k) {
  const NormBackward<T> all(k);
  const bool aligned = packs<T>(all.x, all.C) && packs<T>(all.dy, all.C) &&
                       packs<T>(all.weight, all.C) && packs<T>(all.dx.data, all.C);
  if (k.x.numel() == 0 || !aligned || !launch_kept(stream, all)) {
    return backward_in_turn(stream, k, all);
  }
  if (k.dweight) add_up<T>(stream, k.dweight, all.dweight, all.stride, all.groups);
  if (k.dbias) add_up<T>(stream, k.dbias, all.dbias, all.stride, all.groups);
}

}  // namespace
}  // namespace cuda

void run(const LayerNormBackward& k, CudaStream& stream) {
  check(!k.dx || k.dx.view.dtype() == k.x.dtype(),
        "layer_norm on cuda: dx must have the type of x");
  if (!k.dx && !k.dweight && !k.dbias) return;
  cuda::dispatch(k.x.dtype(), [&](auto x) { cuda::backward<decltype(x)>(stream, k); });
}

}  // namespace spool
