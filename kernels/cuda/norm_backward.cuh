#pragma once

// Backward of the norms of rows: of layer_norm, which is centred; and of rms_norm, which is not,
// and has neither a mean nor a bias.

#include "spool/kernels/cuda/column_sums.cuh"
#include "spool/kernels/layer_norm.h"
#include "spool/kernels/layer_norm_sizes.h"
#include "spool/kernels/rms_norm.h"

namespace spool::cuda {

constexpr int norm_any_threads = 256;

template <class T, bool centred>
struct NormBackward {
  Sink<T> dx;              // null if not needed
  float *dweight, *dbias;  // partial sums of the first group; null if not needed
  int64_t stride;          // from group to group
  const T *dy, *x, *weight;
  const T* before;  // what dx is added to, if it accumulates
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
        before(k.dx && k.dx.accumulate ? k.dx.view.as<T>() : x),
        mean(k.mean.as<float>()),
        rstd(k.rstd.as<float>()),
        N(k.x.shape().rows()),
        C(k.x.shape().row()),
        rows(LayerNormGroups(N, C, k.x.dtype()).rows),
        groups(LayerNormGroups(N, C, k.x.dtype()).count) {}
  explicit NormBackward(const RmsNormBackward& k)
      : dx(k.dx),
        dweight(k.dweight ? k.workspace.as<float>() : nullptr),
        dbias(nullptr),
        stride(k.x.shape().row()),
        dy(k.dy.as<T>()),
        x(k.x.as<T>()),
        weight(k.weight.as<T>()),
        before(k.dx && k.dx.accumulate ? k.dx.view.as<T>() : x),
        mean(nullptr),
        rstd(k.r.as<float>()),
        N(k.x.shape().rows()),
        C(k.x.shape().row()),
        rows(LayerNormGroups(N, C, k.x.dtype()).rows),
        groups(LayerNormGroups(N, C, k.x.dtype()).count) {}

  __device__ __forceinline__ float mean_of(int64_t n) const {
    if constexpr (centred) return __ldg(mean + n);
    return 0;
  }
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

// n sums over a block; every thread gets all.  `scratch` is in shared
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

// A thread's part: `packs` packs of columns, the same in each of `at_once` rows.  Elements beyond
// the rows and the columns are zero.
template <class T, int packs, int at_once, bool centred>
struct NormPiece {
  static constexpr int size = Pack<T>::size;
  // For each row the sum of g h; if centred, before it that of g.
  static constexpr int sums_of_row = centred ? 2 : 1, sums_count = sums_of_row * at_once;
  static constexpr int first_gh = centred ? at_once : 0;
  using Bits = uint4[at_once][packs];

  const NormBackward<T, centred>& k;
  uint4 weight[packs];
  Bits x, dy, before;
  float mean[at_once], rstd[at_once];
  Floats<size> dweight[packs] = {}, dbias[packs] = {};

  __device__ __forceinline__ explicit NormPiece(const NormBackward<T, centred>& all) : k(all) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      weight[p] = load_bits(k.weight + column(p), column(p) < k.C);
    }
  }
  __device__ __forceinline__ int column(int p) const {
    return static_cast<int>(p * blockDim.x + threadIdx.x) * size;
  }
  __device__ __forceinline__ float h(int r, int p, int j) const {
    return (element(x[r][p], j) - mean[r]) * rstd[r];
  }
  __device__ __forceinline__ float g(int r, int p, int j) const {
    return element(dy[r][p], j) * element(weight[p], j);
  }
  static __device__ __forceinline__ float element(const uint4& bits, int j) {
    return to_float(pack_of<T>(bits).at[j]);
  }

  __device__ __forceinline__ void load_rows(int64_t first, int64_t end) {
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
      mean[r] = first + r < end ? k.mean_of(first + r) : 0.0f;
      rstd[r] = first + r < end ? __ldg(k.rstd + first + r) : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
      const int64_t n = first + r;
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        const bool in_range = n < end && column(p) < k.C;
        const int64_t at = n * k.C + column(p);
        x[r][p] = load_bits(k.x + at, in_range);
        dy[r][p] = load_bits_written(k.dy + at, in_range);
        before[r][p] = load_bits_written(k.before + at, in_range && k.dx.accumulate);
      }
    }
  }
  // Adds to dweight and dbias; returns the sums of g, if centred, then those of g h.
  __device__ __forceinline__ ManySums<sums_count> add_rows() {
    ManySums<sums_count> sums = {};
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
#pragma unroll
      for (int p = 0; p < packs; ++p) {
#pragma unroll
        for (int j = 0; j < size; ++j) {
          const float at = element(dy[r][p], j);
          dweight[p].at[j] += at * h(r, p, j);
          if constexpr (centred) {
            dbias[p].at[j] += at;
            sums.at[r] += g(r, p, j);
          }
          sums.at[first_gh + r] += g(r, p, j) * h(r, p, j);
        }
      }
    }
    return sums;
  }
  __device__ __forceinline__ void write_dx(int64_t first, int64_t end,
                                           const ManySums<sums_count>& sums) const {
    const float share = 1 / static_cast<float>(k.C);
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
      const float mean_g = centred ? sums.at[r] * share : 0;
      const float mean_gh = sums.at[first_gh + r] * share;
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        if (first + r >= end || column(p) >= k.C) continue;
        Floats<size> dx;
#pragma unroll
        for (int j = 0; j < size; ++j) {
          dx.at[j] = rstd[r] * (g(r, p, j) - mean_g - h(r, p, j) * mean_gh);
          if (k.dx.accumulate) dx.at[j] += element(before[r][p], j);
        }
        store<size>(k.dx.data + (first + r) * k.C + column(p), dx);
      }
    }
  }
  __device__ __forceinline__ void write_partials(int64_t group) const {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      if (column(p) >= k.C) continue;
      if (k.dweight) store<size>(k.dweight + group * k.stride + column(p), dweight[p]);
      if (centred && k.dbias) store<size>(k.dbias + group * k.stride + column(p), dbias[p]);
    }
  }
};

// A block computes a group of rows, with columns spread over its threads: x and dy are read once.
template <class T, int threads, int packs, int at_once, bool centred>
__global__ void __launch_bounds__(threads, threads > 256 ? 1 : 2)
    backward_kept(NormBackward<T, centred> k) {
  using Piece = NormPiece<T, packs, at_once, centred>;
  SPOOL_SHARED_2D(ManySums<Piece::sums_count>, scratch, 2, threads / warp_lanes);
  Piece piece(k);
  const int64_t begin = blockIdx.x * k.rows;
  const int64_t end = begin + k.rows < k.N ? begin + k.rows : k.N;
  int turn = 0;
  for (int64_t n = begin; n < end; n += at_once, turn ^= 1) {
    piece.load_rows(n, end);
    const auto sums = piece.add_rows();
    if (k.dx.data) piece.write_dx(n, end, block_sums(sums, scratch[turn]));
  }
  piece.write_partials(blockIdx.x);
}

// dx of rows of any length and alignment, an element at a time.
template <class T, bool centred>
__global__ void __launch_bounds__(norm_any_threads) backward_any(NormBackward<T, centred> k) {
  SPOOL_SHARED_2D(float, scratch, 2, warp_lanes);
  const int64_t n = blockIdx.x, row = n * k.C;
  const float mean = k.mean_of(n), rstd = k.rstd[n], count = static_cast<float>(k.C);
  const auto g = [&](int64_t c) { return to_float(k.dy[row + c]) * to_float(k.weight[c]); };
  const auto h = [&](int64_t c) { return (to_float(k.x[row + c]) - mean) * rstd; };
  float sum_g = 0, sum_gh = 0;
  for (int64_t c = threadIdx.x; c < k.C; c += norm_any_threads) {
    if constexpr (centred) sum_g += g(c);
    sum_gh += g(c) * h(c);
  }
  const float mean_g = centred ? block_sum(sum_g, scratch[0]) / count : 0;
  const float mean_gh = block_sum(sum_gh, scratch[1]) / count;
  for (int64_t c = threadIdx.x; c < k.C; c += norm_any_threads) {
    k.dx.put(row + c, Floats<1>{rstd * (g(c) - mean_g - h(c) * mean_gh)});
  }
}

template <class T, bool centred>
struct EachDweight {
  NormBackward<T, centred> k;
  template <int width>
  __device__ Floats<width> at(int64_t n, int64_t c) const {
    Floats<width> product = load<width>(k.dy + n * k.C + c);
    const Floats<width> value = load<width>(k.x + n * k.C + c);
    const float mean = k.mean_of(n), rstd = k.rstd[n];
#pragma unroll
    for (int i = 0; i < width; ++i) product.at[i] *= (value.at[i] - mean) * rstd;
    return product;
  }
};

// For rows that do not fit a block.  The parameters' sums come first, as dx may overwrite dy.
template <class T, bool centred>
void backward_in_turn(CudaStream& stream, const NormBackward<T, centred>& all, const Grad& dweight,
                      const Grad& dbias, float* partials) {
  const bool wide = packs<T>(all.dy, all.C) && packs<T>(all.x, all.C);
  if (dweight) {
    sum_columns<T>(stream, EachDweight<T, centred>{all}, all.N, dweight, partials, wide);
  }
  if (dbias) {
    const EachValue<T> each{.x = all.dy, .C = all.C};
    sum_columns<T>(stream, each, all.N, dbias, partials, wide);
  }
  if (!all.dx.data || all.N * all.C == 0) return;
  launch_kernel(stream, backward_any<T, centred>,
                {.grid = dim3(unsigned(all.N)), .block = dim3(norm_any_threads)}, all);
}

template <int max_threads, int packs, int at_once, class T, bool centred>
bool launch_kept_backward(CudaStream& stream, const NormBackward<T, centred>& k) {
  const int64_t threads = ceil_div<int64_t>(k.C, int64_t{packs} * Pack<T>::size);
  if (threads > max_threads) return false;
  const auto block = unsigned(ceil_div<int64_t>(threads, warp_lanes) * warp_lanes);
  launch_kernel(stream, backward_kept<T, max_threads, packs, at_once, centred>,
                {.grid = dim3(unsigned(k.groups)), .block = dim3(block)}, k);
  return true;
}

// Launches one pass.  A longer row has more threads, and the longest are taken one at a time.
// False if a row does not fit a block.
template <class T, bool centred>
bool launch_fitting_backward(CudaStream& stream, const NormBackward<T, centred>& k) {
  return launch_kept_backward<256, 1, 4>(stream, k) || launch_kept_backward<512, 1, 4>(stream, k) ||
         launch_kept_backward<1024, 1, 1>(stream, k);
}

// The gradients of the parameters may be absent; `partials` is the workspace.
template <class T, bool centred>
void norm_backward(CudaStream& stream, const NormBackward<T, centred>& all, const Grad& dweight,
                   const Grad& dbias, float* partials) {
  const bool aligned = packs<T>(all.x, all.C) && packs<T>(all.dy, all.C) &&
                       packs<T>(all.weight, all.C) && packs<T>(all.dx.data, all.C);
  if (all.N * all.C == 0 || !aligned || !launch_fitting_backward(stream, all)) {
    return backward_in_turn(stream, all, dweight, dbias, partials);
  }
  if (dweight && dbias && dweight.view.data() == dbias.view.data()) {  // in turn
    add_up<T>(stream, {dweight}, all.dweight, all.stride, all.groups);
    return add_up<T>(stream, {dbias}, all.dbias, all.stride, all.groups);
  }
  add_up<T>(stream, {dweight, dbias}, partials, all.stride, all.groups);
}

}  // namespace spool::cuda
