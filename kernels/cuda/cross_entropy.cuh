#pragma once

// A block computes a row of logits, all of it (cross_entropy.cu) or a part (cross_entropy_part.cu).
// What fits in shared memory may be read once: each thread keeps its packs, sums them up under a
// running maximum, and later turns them into the gradient.

#include <limits>

#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/cuda/device.cuh"
#include "spool/kernels/functions.h"

namespace spool::cuda {

constexpr int row_block = 512;
constexpr int in_flight = 4;  // packs that a thread loads at a time, to hide the latency of memory
constexpr float lowest_logit = std::numeric_limits<float>::lowest();

// The elements of a row as packs aligned to 16 bytes, wherever the row begins; the first and the
// last pack may be partial.
template <class T>
struct PackedRow {
  static constexpr int size = Pack<T>::size;
  int begin, end;  // the row, in elements from the first of pack 0
  T* origin;

  __device__ PackedRow(T* row, int columns)
      : begin(static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T))),
        end(begin + columns),
        origin(row - begin) {}

  __device__ static int packs(int elements) { return ceil_div(elements, size); }
  __device__ bool whole(int p) const { return p * size >= begin && (p + 1) * size <= end; }

  // Element by element, with zeros outside of the row.
  __device__ Pack<T> load_cut(int p) const {
    Pack<T> pack;
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const int i = p * size + k;
      pack.at[k] = i >= begin && i < end ? origin[i] : from_float<T>(0);
    }
    return pack;
  }
  __device__ void store(int p, const Pack<T>& pack) const {
    if (whole(p)) return store_pack(origin + int64_t{p} * size, pack);
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const int i = p * size + k;
      if (i >= begin && i < end) origin[i] = pack.at[k];
    }
  }
};

// Largest z, sum of exp(z - largest), and sum of z.
struct RowSums {
  float largest, exponentials, total;
  __device__ static RowSums none() { return {lowest_logit, 0, 0}; }
};

// Merges the sums of the threads of a block; every thread gets the result.
__device__ __forceinline__ RowSums merge(RowSums mine) {
  SPOOL_SHARED(RowSums, of_warps, warp_lanes);
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  const auto merge_warp = [](const RowSums& s) {
    const float largest = warp_max(s.largest);
    return RowSums{largest, warp_sum(s.exponentials * math::fast_exp(s.largest - largest)),
                   warp_sum(s.total)};
  };
  mine = merge_warp(mine);
  if (lane == 0) of_warps[warp] = mine;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  return merge_warp(lane < warps ? of_warps[lane] : RowSums::none());
}

// The loss of a row of V columns whose target has z = `target`.
__device__ __forceinline__ float loss_of(const RowSums& sums, float target, int V,
                                         const CrossEntropyOptions& options) {
  const float e = options.label_smoothing;
  const float log_sum = logf(sums.exponentials), lse = sums.largest + log_sum;
  // lse - z[y], without the digits that lse loses to the maximum
  const float to_target = log_sum - (target - sums.largest);
  const float to_mean = e != 0 ? lse - sums.total / static_cast<float>(V) : 0;
  return (1 - e) * to_target + e * to_mean + options.z_loss * lse * lse;
}

template <class T>
struct LogitsRows {
  T* logits = nullptr;
  const int32_t* targets = nullptr;
  float* losses = nullptr;
  const float *scale = nullptr, *upstream = nullptr;
  int columns = 0;     // of these rows
  int used = 0;        // how many of them count
  int vocabulary = 0;  // how many of the whole rows count, of which these may be a part
  int kept = 0;        // packs of a row that shared memory has room for
  bool gradient = false, upstream_each = false;
  float upstream_known = 0;
  CrossEntropyOptions options = {};

  // What the gradient of row n is multiplied by.
  __device__ float gradient_factor(int64_t n) const {
    const float one = upstream ? upstream[upstream_each ? n : 0] : 1;
    return (scale ? *scale : 1) * (one - upstream_known);
  }
};

template <class T, bool capped>
struct LogitsRow {
  static constexpr int size = Pack<T>::size;
  const LogitsRows<T>& all;
  PackedRow<T> row;
  uint4* kept;

  __device__ float squashed(float x) const { return tanhf(x / all.options.soft_cap); }
  __device__ float z(float x) const { return capped ? all.options.soft_cap * squashed(x) : x; }
  __device__ int used() const { return row.begin + all.used; }
  // Whether all elements of pack p are of the vocabulary.
  __device__ bool inside(int p) const { return p * size >= row.begin && (p + 1) * size <= used(); }

  // Packs p, p + step, ... of those inside, `in_flight` of them at a time.
  __device__ void load_batch(uint4 (&bits)[in_flight], int p, int step) const {
#pragma unroll
    for (int k = 0; k < in_flight; ++k) {
      const int q = p + k * step;
      bits[k] = load_bits_written(row.origin + int64_t{q} * size, inside(q));
    }
  }

  template <bool cut>
  __device__ bool counts(int i) const {
    return !cut || (i >= row.begin && i < used());
  }
  // Subtracts before it multiplies by the factor of the exponential's base: logits may be near the
  // largest number.
  template <bool cut>
  __device__ void add(RowSums& sums, const Pack<T>& pack, int p) const {
    float each[size], largest = lowest_logit;
#pragma unroll
    for (int k = 0; k < size; ++k) {
      each[k] = counts<cut>(p * size + k) ? z(to_float(pack.at[k])) : -INFINITY;
      largest = fmaxf(largest, each[k]);
    }
    if (all.options.label_smoothing != 0) {
#pragma unroll
      for (int k = 0; k < size; ++k) sums.total += counts<cut>(p * size + k) ? each[k] : 0;
    }
    const float next = fmaxf(sums.largest, largest);
    float sum = sums.exponentials * math::fast_exp(sums.largest - next);
#pragma unroll
    for (int k = 0; k < size; ++k) sum += math::fast_exp(each[k] - next);
    sums.exponentials = sum;
    sums.largest = next;
  }

  __device__ RowSums sum_up() const {
    RowSums sums = RowSums::none();
    const int threads = static_cast<int>(blockDim.x), packs = row.packs(used());
    for (int p = static_cast<int>(threadIdx.x); p < packs; p += in_flight * threads) {
      uint4 bits[in_flight];
      load_batch(bits, p, threads);
#pragma unroll
      for (int k = 0; k < in_flight; ++k) {
        const int q = p + k * threads;
        if (q >= packs) break;
        if (inside(q)) {
          add<false>(sums, pack_of<T>(bits[k]), q);
        } else {
          const Pack<T> cut = row.load_cut(q);
          bits[k] = bits_of(cut);
          add<true>(sums, cut, q);
        }
        if (q < all.kept) kept[q] = bits[k];
      }
    }
    return merge(sums);
  }

  // y is the column of the target, or -1 if it is another part's.
  __device__ void differentiate(const RowSums& sums, int y, float g) const {
    const float e = all.options.label_smoothing;
    const float lse = sums.largest + logf(sums.exponentials);
    const Slope slope{.largest = sums.largest,
                      .factor = g * (1 + 2 * all.options.z_loss * lse) / sums.exponentials,
                      .spread = e / static_cast<float>(all.vocabulary) * g,
                      .one = (1 - e) * g,
                      .target = y < 0 ? -1 : row.begin + y};
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int read = row.packs(used()), last_kept = min(all.kept, read);
    for (int p = thread; p < last_kept; p += threads) write(slope, kept[p], p);
    for (int p = last_kept + thread; p < read; p += in_flight * threads) {
      uint4 bits[in_flight];
      load_batch(bits, p, threads);
#pragma unroll
      for (int k = 0; k < in_flight; ++k) {
        const int q = p + k * threads;
        if (q >= read) break;
        write(slope, inside(q) ? bits[k] : bits_of(row.load_cut(q)), q);
      }
    }
    fill_from(read, 0);
  }

  // dz[i] = exp(z[i] - largest) factor - spread, less `one` for the target.
  struct Slope {
    float largest, factor, spread, one;
    int target;  // in elements from the first of pack 0
  };
  __device__ void write(const Slope& slope, const uint4& bits, int p) const {
    const bool plain = inside(p) && static_cast<unsigned>(slope.target - p * size) >= size;
    if (plain) {
      store_pack(row.origin + int64_t{p} * size, gradient<true>(slope, pack_of<T>(bits), p));
    } else {
      row.store(p, gradient<false>(slope, pack_of<T>(bits), p));
    }
  }
  template <bool plain>
  __device__ Pack<T> gradient(const Slope& slope, Pack<T> pack, int p) const {
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const int i = p * size + k;
      const float t = capped ? squashed(to_float(pack.at[k])) : 0;
      const float now = capped ? all.options.soft_cap * t : to_float(pack.at[k]);
      float dz = fmaf(math::fast_exp(now - slope.largest), slope.factor, -slope.spread);
      if (!plain) dz = i < used() ? dz - (i == slope.target ? slope.one : 0) : 0;
      pack.at[k] = from_float<T>(dz * (1 - t * t));
    }
    return pack;
  }

  __device__ void fill(float value) const { fill_from(0, value); }
  __device__ void fill_from(int begin, float value) const {
    Pack<T> pack;
#pragma unroll
    for (int k = 0; k < size; ++k) pack.at[k] = from_float<T>(value);
    const int packs = row.packs(row.end), threads = static_cast<int>(blockDim.x);
    for (int p = begin + static_cast<int>(threadIdx.x); p < packs; p += threads) row.store(p, pack);
  }
};

// The columns of the logits of a kernel.
inline int columns_of(const char* kernel, const View& logits) {
  const int64_t columns = logits.shape().row();
  check(columns <= int64_t{1} << 30, kernel, " on cuda: a row of ", columns,
        " logits is beyond the maximum of 2^30");
  return static_cast<int>(columns);
}

inline LaunchShape block_a_row(const View& logits, int64_t kept) {
  const int64_t warps = ceil_div<int64_t>(packs_of_row(logits), int64_t{in_flight} * warp_lanes);
  const auto threads = unsigned(std::min<int64_t>(warps * warp_lanes, row_block));
  return {.grid = dim3(unsigned(logits.shape().rows())),
          .block = dim3(threads),
          .shared = static_cast<size_t>(kept) * sizeof(uint4)};
}

}  // namespace spool::cuda
