#pragma once

// Parts of attention forward and backward on cuda: the rows of heads in a tensor, tiles of them as
// f32 in shared memory, and products of tiles with results in registers.
//
// A block has 16 x 16 threads.  In a product of tiles of `rows` and of `columns` rows of D numbers,
// each thread has R x C results.  A row of results is spread over 16 threads of one warp, so that
// sums and maxima over a row need no shared memory.

#include <type_traits>

#include "spool/kernels/cuda/attention.cuh"
#include "spool/kernels/cuda/device.cuh"

namespace spool::cuda {

constexpr int side = 16, tile_block = side * side;

template <int head, int rows_each, int columns_each>
struct Tiling {
  static constexpr int D = head, R = rows_each, C = columns_each;
  static constexpr int rows = side * R, columns = side * C;
  // Strides of rows in shared memory: 16-byte accesses to one column of 8 rows have no bank
  // conflicts.
  static constexpr int stride = D + 4, weights_stride = columns + 4;
  static constexpr int row_tile = rows * stride, column_tile = columns * stride;
  static constexpr int weights_tile = rows * weights_stride;
};

__device__ __forceinline__ int thread_row() { return static_cast<int>(threadIdx.x) / side; }
__device__ __forceinline__ int thread_column() { return static_cast<int>(threadIdx.x) % side; }

// A row or a column of a tile of n, counted from its first one, in 32 bits; n for all beyond the
// tile.
template <int n>
__device__ __forceinline__ int place_in(int64_t place) {
  return static_cast<int>(min(place, int64_t{n}));
}

struct alignas(16) Four {
  float at[4];
};
__device__ __forceinline__ Four load_shared(const float* from) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}

// Four elements of a tensor.
__device__ __forceinline__ Four load_four(const float* from) {
  const float4 v = __ldg(reinterpret_cast<const float4*>(from));
  return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ Four load_four(const __nv_bfloat16* from) {
  const uint2 bits = __ldg(reinterpret_cast<const uint2*>(from));
  __nv_bfloat16 v[4];
  memcpy(v, &bits, sizeof bits);
  return {{to_float(v[0]), to_float(v[1]), to_float(v[2]), to_float(v[3])}};
}
__device__ __forceinline__ void store_four(float* to, const Four& x) {
  __stcg(reinterpret_cast<float4*>(to), make_float4(x.at[0], x.at[1], x.at[2], x.at[3]));
}
__device__ __forceinline__ void store_four(__nv_bfloat16* to, const Four& x) {
  __nv_bfloat16 v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = from_float<__nv_bfloat16>(x.at[k]);
  uint2 bits;
  memcpy(&bits, v, sizeof bits);
  __stcg(reinterpret_cast<uint2*>(to), bits);
}

// Rows of one head.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride;  // in elements, as all of these
  __device__ T* at(int64_t row) const { return data + row * stride; }
};

// Heads of sequences, at any strides.
template <class T>
struct HeadArray {
  T* data;
  int64_t sequence, head, row;
  __device__ HeadRows<T> rows(int64_t b, int64_t h) const {
    return {data + b * sequence + h * head, row};
  }
};

// The heads from `first` on of a tensor (B, T, heads D).
template <class T>
HeadArray<T> heads_of(const View& t, int64_t first, int64_t D) {
  const int64_t row = t.shape().row();
  return {t.as<T>() + first * D, t.shape()[1] * row, D, row};
}

// Whether rows of heads of D numbers can be moved four elements at a time.
template <class T>
bool by_fours(const View& t, int64_t D) {
  return reinterpret_cast<uintptr_t>(t.data()) % (4 * sizeof(T)) == 0 && D % 4 == 0;
}

// The smallest first visible key of queries [begin, end) of a text, in every lane; 0 without
// `firsts`.
__device__ __forceinline__ int min_first(const int* firsts, int64_t begin, int64_t end) {
  if (!firsts) return 0;
  int min_value = INT32_MAX;
  for (int64_t i = begin + static_cast<int>(threadIdx.x) % warp_lanes; i < end; i += warp_lanes) {
    min_value = min(min_value, __ldg(firsts + i));
  }
  return __reduce_min_sync(all_lanes, min_value);
}

// Copies the first visible keys of queries [begin, begin + n) of a text to shared memory, where
// they take no registers; queries beyond the last get the last one's.
template <int n>
__device__ __forceinline__ void load_firsts(int* to, const int* firsts, int64_t begin,
                                            int64_t length) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < n) to[i] = __ldg(firsts + min(begin + i, length - 1));
}

// One past the last query of a text, from `begin` on, that sees a key before `end_key`.  All
// threads of the block get it.
template <int threads>
__device__ int end_of_queries(const int* firsts, int64_t begin, int64_t end_key, int64_t length) {
  SPOOL_SHARED(int, ends, threads / warp_lanes);
  int end = 0;
  for (int64_t i = begin + static_cast<int>(threadIdx.x); i < length; i += threads) {
    if (__ldg(firsts + i) < end_key) end = static_cast<int>(i) + 1;
  }
  end = __reduce_max_sync(all_lanes, end);
  if (threadIdx.x % warp_lanes == 0) ends[threadIdx.x / warp_lanes] = end;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < threads / warp_lanes; ++w) end = max(end, ends[w]);
  return end;
}

// Which part of a head to read, and how.
struct TileLoad {
  int count;  // rows to read; the rest of the tile is zeros
  int D;
  bool fours;
  float factor = 1;
};

// Rows from `begin` on of a head, times a factor; zeros from D up to a multiple of 4.
template <int rows, int stride, class T>
__device__ void load_tile(float* to, const HeadRows<const T>& from, int64_t begin,
                          const TileLoad& load) {
  for (int r = thread_row(); r < rows; r += side) {
    const T* const row = from.at(begin + r);
    for (int d = 4 * thread_column(); d < load.D; d += 4 * side) {
      Four x = {};
      if (r < load.count) {
        if (load.fours) {
          x = load_four(row + d);
        } else {
#pragma unroll
          for (int k = 0; k < 4; ++k) x.at[k] = d + k < load.D ? to_float(row[d + k]) : 0;
        }
      }
      const float f = load.factor;
      *reinterpret_cast<float4*>(to + r * stride + d) =
          make_float4(f * x.at[0], f * x.at[1], f * x.at[2], f * x.at[3]);
    }
  }
}

// c[r][c] = sum_d a[row of r, d] b[column of c, d]; columns of a thread are 16 apart.
template <class S>
__device__ __forceinline__ void multiply(float (&c)[S::R][S::C], const float* a, const float* b,
                                         int D) {
  a += thread_row() * S::R * S::stride;
  b += thread_column() * S::stride;
#pragma unroll
  for (int i = 0; i < S::R; ++i) {
#pragma unroll
    for (int j = 0; j < S::C; ++j) c[i][j] = 0;
  }
#pragma unroll 4
  for (int d = 0; d < D; d += 4) {
    Four x[S::R], y[S::C];
#pragma unroll
    for (int i = 0; i < S::R; ++i) x[i] = load_shared(a + i * S::stride + d);
#pragma unroll
    for (int j = 0; j < S::C; ++j) y[j] = load_shared(b + j * side * S::stride + d);
#pragma unroll
    for (int i = 0; i < S::R; ++i) {
#pragma unroll
      for (int j = 0; j < S::C; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) c[i][j] += x[i].at[k] * y[j].at[k];
      }
    }
  }
}

// A thread's part of rows of D numbers: four consecutive ones in each group of 64.
template <class S>
using Accumulator = float[S::R][S::D / side];

// sum[r] += sum_j weights[row of r, j] b[j]
template <class S>
__device__ __forceinline__ void add_weighted(Accumulator<S>& sum, const float* weights,
                                             const float* b) {
  weights += thread_row() * S::R * S::weights_stride;
  b += 4 * thread_column();
#pragma unroll 2
  for (int j = 0; j < S::columns; j += 4) {
    Four w[S::R];
#pragma unroll
    for (int i = 0; i < S::R; ++i) w[i] = load_shared(weights + i * S::weights_stride + j);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int g = 0; g < S::D / (4 * side); ++g) {
        const Four x = load_shared(b + (j + k) * S::stride + g * 4 * side);
#pragma unroll
        for (int i = 0; i < S::R; ++i) {
#pragma unroll
          for (int m = 0; m < 4; ++m) sum[i][4 * g + m] += w[i].at[k] * x.at[m];
        }
      }
    }
  }
}

// Stores a thread's part of the weights where the other threads of its rows can read it after a
// __syncwarp().
template <class S>
__device__ __forceinline__ void store_weights(float* weights, const float (&part)[S::R][S::C]) {
  weights += thread_row() * S::R * S::weights_stride + thread_column();
#pragma unroll
  for (int i = 0; i < S::R; ++i) {
#pragma unroll
    for (int j = 0; j < S::C; ++j) weights[i * S::weights_stride + j * side] = part[i][j];
  }
}

// How to write a tile.
struct TileStore {
  int count, D;
  bool fours, accumulate = false;
};

template <class S, class T>
__device__ void store_tile(const HeadRows<T>& to, int64_t begin, const Accumulator<S>& from,
                           const TileStore& store) {
#pragma unroll
  for (int i = 0; i < S::R; ++i) {
    const int r = thread_row() * S::R + i;
    if (r >= store.count) continue;
    T* const row = to.at(begin + r);
#pragma unroll
    for (int g = 0; g < S::D / (4 * side); ++g) {
      const int d = 4 * (g * side + thread_column());
      Four x;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        x.at[k] = from[i][4 * g + k];
        if (store.accumulate && d + k < store.D) x.at[k] += to_float(row[d + k]);
      }
      if (store.fours && d < store.D) {
        store_four(row + d, x);
      } else if (!store.fours) {
        for (int k = 0; k < 4 && d + k < store.D; ++k) row[d + k] = from_float<T>(x.at[k]);
      }
    }
  }
}

// Calls f with the smallest head size, among those that kernels are compiled for, that is at least
// D.
template <class F>
void dispatch_head(int64_t D, F&& f) {
  check(D <= max_head_size, "attention on cuda: a head size of ", D, " is beyond the maximum of ",
        max_head_size);
  if (D <= 64) return f(std::integral_constant<int, 64>());
  if (D <= 128) return f(std::integral_constant<int, 128>());
  f(std::integral_constant<int, 256>());
}

}  // namespace spool::cuda
