#pragma once

// Attention of few queries, limited by the speed of memory.  A block reads a piece of the keys and
// values of a head; it reads the rows of new tokens from qkv and stores them in the cache.  The
// results of the pieces of a query are merged in order.

#include <limits>

#include "spool/kernels/cached_attention_sizes.h"
#include "spool/kernels/cuda/attention_tiles.cuh"
#include "spool/kernels/functions.h"

namespace spool::cuda {

// Keys or values: the rows of new tokens, in qkv, and the cache.
template <class T>
struct CachePart {
  HeadArray<const T> fresh;
  HeadArray<T> cache;
};

// The position of the first new token: from device memory, if that is where it is.
struct CachePlace {
  int64_t most;
  const int32_t* place;  // may be absent

  __device__ int64_t position() const {
    return place ? min(max(int64_t{__ldg(place)}, int64_t{0}), most) : most;
  }
};

constexpr int piece_block = 128, piece_warps = piece_block / warp_lanes;
constexpr int lane_width = 8;  // elements of a row in a lane
constexpr float lowest_score = std::numeric_limits<float>::lowest();

template <class T>
struct PieceArguments {
  CachePart<T> keys, values;
  HeadArray<const T> queries;
  HeadArray<T> y;
  float* parts;          // (B, H, n, pieces, 2 + D), if there may be more than one piece
  const int32_t* first;  // (B): where the text of each row begins; may be absent
  CachePlace place;
  int64_t Hkv, group, n, keys_each, pieces, part_floats;  // pieces: the most that there may be
  int D;
  bool packed;
  float scale;

  __device__ int64_t rows() const { return group * n; }  // queries that share a key head
};

// A lane's elements of a row of D elements.
template <class T>
struct Columns {
  static constexpr int size = Pack<T>::size;
  uint4 bits[lane_width / size];

  __device__ __forceinline__ float at(int k) const {
    return to_float(pack_of<T>(bits[k / size]).at[k % size]);
  }

  // Loads elements from `first` on; zeros from D on, and all zeros unless `in_range`.
  __device__ __forceinline__ void load(const T* row, int first, int D, bool packed,
                                       bool in_range = true) {
    if (packed) {
      load_packs(row, first, D, in_range);
    } else {
      load_each(row, first, D, in_range);
    }
  }
  __device__ __forceinline__ void load_packs(const T* row, int first, int D, bool in_range) {
#pragma unroll
    for (int k = 0; k < lane_width; k += size) {
      bits[k / size] = load_bits(row + first + k, in_range && first + k < D);
    }
  }
  __device__ __forceinline__ void load_each(const T* row, int first, int D, bool in_range) {
#pragma unroll
    for (int k = 0; k < lane_width; k += size) {
      Pack<T> pack;
#pragma unroll
      for (int i = 0; i < size; ++i) {
        pack.at[i] = in_range && first + k + i < D ? row[first + k + i] : from_float<T>(0);
      }
      bits[k / size] = bits_of(pack);
    }
  }
  __device__ __forceinline__ void store(T* row, int first, int D, bool packed) const {
#pragma unroll
    for (int k = 0; k < lane_width; k += size) {
      const Pack<T> pack = pack_of<T>(bits[k / size]);
      if (packed && first + k < D) store_pack(row + first + k, pack);
#pragma unroll
      for (int i = 0; i < size; ++i) {
        if (!packed && first + k + i < D) row[first + k + i] = pack.at[i];
      }
    }
  }
};

// Rows that a thread loads at a time, to hide the latency of memory.
constexpr int batch_rows = 4;
template <class T>
using Batch = Columns<T>[batch_rows];

// A piece of the keys of one head, and up to R of the queries that share them.  `lanes` lanes read
// a row of D <= 8 lanes numbers.
template <int lanes, int R, class T>
struct Piece {
  const PieceArguments<T>& all;
  float (*scores)[max_keys];
  float (*sums)[R][lanes * lane_width];  // of each warp
  int64_t b, kv, piece, first_row, position, begin;
  bool is_alone;       // there is no other piece
  int count;           // of keys
  int64_t text_first;  // queries before it see only their own key, others the keys from it on

  static constexpr int at_once = piece_block / lanes;
  __device__ static int column() { return static_cast<int>(threadIdx.x) % lanes * lane_width; }
  __device__ static int first_key() { return static_cast<int>(threadIdx.x) / lanes; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % warp_lanes; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / warp_lanes; }
  __device__ bool in_range(int r) const { return first_row + r < all.rows(); }
  // The query head of row r, and the index of the query within the head.
  __device__ int64_t head(int r) const { return kv * all.group + (first_row + r) / all.n; }
  __device__ int64_t query(int r) const { return (first_row + r) % all.n; }

  __device__ bool is_new(int key) const { return begin + key >= position; }
  __device__ const T* row_of(const CachePart<T>& part, int key) const {
    return is_new(key) ? part.fresh.rows(b, kv).at(begin + key - position)
                       : part.cache.rows(b, kv).at(begin + key);
  }

  // The keys of this thread in the batch from `step` on.
  __device__ static int key_of(int step, int i) { return step + i * at_once + first_key(); }
  __device__ void load(Batch<T>& batch, const CachePart<T>& part, int step) const {
    if (all.packed) {
#pragma unroll
      for (int i = 0; i < batch_rows; ++i) {
        const int key = key_of(step, i);
        batch[i].load_packs(row_of(part, key), column(), all.D, key < count);
      }
    } else {
#pragma unroll
      for (int i = 0; i < batch_rows; ++i) {
        const int key = key_of(step, i);
        batch[i].load_each(row_of(part, key), column(), all.D, key < count);
      }
    }
  }

  // Stores the rows of new tokens in the cache; one of the blocks that read them does.
  __device__ void store_new(const CachePart<T>& part) const {
    if (first_row > 0) return;
    for (int key = first_key(); key < count; key += at_once) {
      if (!is_new(key)) continue;
      Columns<T> row;
      row.load(row_of(part, key), column(), all.D, all.packed);
      row.store(part.cache.rows(b, kv).at(begin + key), column(), all.D, all.packed);
    }
  }

  __device__ void score() const {
    float q[R][lane_width];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int real = in_range(r) ? r : 0;
      Columns<T> row;
      row.load(all.queries.rows(b, head(real)).at(query(real)), column(), all.D, all.packed);
#pragma unroll
      for (int k = 0; k < lane_width; ++k) q[r][k] = all.scale * row.at(k);
    }
    for (int step = 0; step < count; step += batch_rows * at_once) {
      Batch<T> keys;
      load(keys, all.keys, step);
#pragma unroll
      for (int i = 0; i < batch_rows; ++i) score(q, keys[i], key_of(step, i));
    }
  }
  __device__ void score(const float (&q)[R][lane_width], const Columns<T>& row, int key) const {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      float s = 0;
#pragma unroll
      for (int k = 0; k < lane_width; ++k) s += q[r][k] * row.at(k);
#pragma unroll
      for (int other = lanes / 2; other > 0; other /= 2) {
        s += __shfl_xor_sync(all_lanes, s, other);
      }
      const int64_t token = position + query(r);
      const bool seen =
          in_range(r) && begin + key <= token && begin + key >= min(text_first, token);
      if (column() == 0 && key < count) scores[r][key] = seen ? s : -INFINITY;
    }
  }

  // Turns scores into weights, one row per warp; returns {largest score, sum of weights}.
  __device__ float2 weigh() const {
    const int r = warp();
    float largest = lowest_score, sum = 0;
    if (r >= R) return {largest, sum};
    for (int j = lane(); j < count; j += warp_lanes) largest = fmaxf(largest, scores[r][j]);
    largest = warp_max(largest);
    for (int j = lane(); j < count; j += warp_lanes) {
      sum += scores[r][j] = math::fast_exp(scores[r][j] - largest);
    }
    return {largest, warp_sum(sum)};
  }

  // Sums up y of this block's rows; `ahead` has the values of the first step, loaded early.
  __device__ void sum_up(Batch<T>& ahead) const {
    float y[R][lane_width] = {};
    for (int step = 0; step < count; step += batch_rows * at_once) {
      if (step > 0) load(ahead, all.values, step);
#pragma unroll
      for (int i = 0; i < batch_rows; ++i) {
        const int key = key_of(step, i);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const float weight = key < count ? scores[r][key] : 0;
#pragma unroll
          for (int k = 0; k < lane_width; ++k) y[r][k] += weight * ahead[i].at(k);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int k = 0; k < lane_width; ++k) {
#pragma unroll
        for (int other = lanes; other < warp_lanes; other *= 2) {
          y[r][k] += __shfl_xor_sync(all_lanes, y[r][k], other);
        }
        if (lane() < lanes) sums[warp()][r][column() + k] = y[r][k];
      }
    }
  }

  // Writes y if there is one piece, else what merging needs.
  __device__ void write(const float2* totals) const {
    for (int r = 0; r < R; ++r) {
      if (!in_range(r)) return;
      const int64_t row = ((b * all.Hkv * all.group + head(r)) * all.n + query(r)) * all.pieces;
      float* const part = is_alone ? nullptr : all.parts + (row + piece) * all.part_floats;
      T* const y = all.y.rows(b, head(r)).at(query(r));
      for (int d = static_cast<int>(threadIdx.x); d < all.D; d += piece_block) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < piece_warps; ++w) sum += sums[w][r][d];
        if (is_alone) {
          y[d] = from_float<T>(sum / totals[r].y);
        } else {
          part[2 + d] = sum;
        }
      }
      if (!is_alone && threadIdx.x == 0) {
        part[0] = totals[r].x;
        part[1] = totals[r].y;
      }
    }
  }
};

template <int lanes, int R, class T>
__global__ void __launch_bounds__(piece_block) piece_kernel(PieceArguments<T> all) {
  static_assert(R <= piece_warps);
  SPOOL_SHARED_2D(float, scores, R, max_keys);
  SPOOL_SHARED(float2, totals, piece_warps);
  using SumsOfWarp = float[R][lanes * lane_width];
  SPOOL_SHARED(SumsOfWarp, sums, piece_warps);
  const int64_t place = blockIdx.x / all.pieces, piece = blockIdx.x % all.pieces;
  const int64_t position = all.place.position();
  const int64_t begin = piece * all.keys_each, end = position + all.n;
  if (begin >= end) return;
  const Piece<lanes, R, T> mine{.all = all,
                                .scores = scores,
                                .sums = sums,
                                .b = place / all.Hkv,
                                .kv = place % all.Hkv,
                                .piece = piece,
                                .first_row = int64_t{blockIdx.y} * R,
                                .position = position,
                                .begin = begin,
                                .is_alone = end <= all.keys_each,
                                .count = static_cast<int>(min(all.keys_each, end - begin)),
                                .text_first = all.first ? __ldg(all.first + place / all.Hkv) : 0};
  Batch<T> values;
  mine.load(values, all.values, 0);
  mine.score();
  __syncthreads();
  const float2 total = mine.weigh();
  if (mine.lane() == 0) totals[mine.warp()] = total;
  __syncthreads();
  mine.sum_up(values);
  mine.store_new(all.keys);
  mine.store_new(all.values);
  __syncthreads();
  mine.write(totals);
}

constexpr int merge_block = 128;

struct PartsOfQueries {
  const float* data;  // (B, H, n, most, floats)
  int64_t most, floats;
  CachePlace place;
  int64_t keys_each;

  // Of a text that ends n tokens behind the place.
  __device__ int64_t pieces(int64_t n) const {
    return place.place ? ceil_div(int(place.position() + n), int(keys_each)) : most;
  }
};

// A block has one query of one head.
template <class T>
__global__ void __launch_bounds__(merge_block)
    merge_pieces_kernel(HeadArray<T> y, PartsOfQueries all, AttentionExtents e) {
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int64_t place = blockIdx.x, pieces = all.pieces(e.T), each = all.floats;
  if (pieces == 1) return;  // which has written y
  const int64_t t = place % e.T, h = place / e.T % e.H, b = place / e.T / e.H;
  const float* const parts = all.data + place * all.most * each;
  float largest = lowest_score, sum = 0;
  for (int64_t i = lane; i < pieces; i += warp_lanes) largest = fmaxf(largest, parts[i * each]);
  largest = warp_max(largest);
  for (int64_t i = lane; i < pieces; i += warp_lanes) {
    sum += parts[i * each + 1] * math::fast_exp(parts[i * each] - largest);
  }
  const float factor = 1 / warp_sum(sum);
  T* const row = y.rows(b, h).at(t);
  for (int64_t d = threadIdx.x; d < e.D; d += merge_block) {
    float weighted = 0;
#pragma unroll 8
    for (int64_t i = 0; i < pieces; ++i) {
      weighted += parts[i * each + 2 + d] * math::fast_exp(parts[i * each] - largest);
    }
    row[d] = from_float<T>(weighted * factor);
  }
}

}  // namespace spool::cuda
