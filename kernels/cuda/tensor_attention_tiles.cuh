#pragma once

// Parts of the kernels of attention on tensor cores: tiles of rows of a head in shared memory,
// products of them with results in registers, masks, and the way back to a tensor.
//
// A block of four warps has a tile of `rows` rows, 16 M for each warp, and loops over tiles of N
// rows of the other side, of which the next is copied while the last is used.  A warp's results are
// 16 x 8 matrices; of each, lane l has rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next.
//
// The numbers of a row in shared memory are followed by 16 unused bytes.  Then the 16-byte pieces
// of 8 rows that one phase of load_fragment() reads lie in different banks, as rows are an odd
// number of such pieces apart.

#include "spool/kernels/cuda/attention_tiles.cuh"
#include "spool/kernels/cuda/mma.cuh"
#include "spool/kernels/cuda/tensor_attention.cuh"

namespace spool::cuda {

using bf16 = __nv_bfloat16;

// Shared memory that a block may have on any device of compute capability 8.0 and up.
constexpr size_t max_block_shared = size_t{99} << 10;

// `kept`: whether the fragments of the block's own rows stay in registers.
template <int head, int row_matrices, int others, bool in_registers>
struct TensorTiling {
  static constexpr int D = head, M = row_matrices, N = others;
  static constexpr bool kept = in_registers;
  static constexpr int warps = 4, threads = warps * warp_lanes;
  static constexpr int warp_rows = 16 * M, rows = warps * warp_rows;
  static constexpr int stride = D + 8;
  static constexpr int row_tile = rows * stride, other_tile = N * stride;  // in numbers
  // For write_rows(), in floats.
  static constexpr int written_stride = D + 8, written_tile = 16 * written_stride;
  static_assert(D % 32 == 0 && N % 16 == 0);
};

__device__ __forceinline__ int warp_of_block() {
  return static_cast<int>(threadIdx.x) / warp_lanes;
}
__device__ __forceinline__ int lane_row() { return lane_of_warp() / 4; }
__device__ __forceinline__ int lane_column() { return lane_of_warp() % 4 * 2; }

// Where this lane's row of a fragment begins, for a tile or a part of one.
template <int stride>
__device__ __forceinline__ const bf16* fragment_row(const bf16* tile) {
  return tile + lane_of_warp() % 16 * stride + lane_of_warp() / 16 * 8;
}

// The same with the second and third 8 x 8 matrix swapped: then the words that one multiply_add()
// takes as b are neighbours, as the instruction wants them.
template <int stride>
__device__ __forceinline__ const bf16* right_row(const bf16* tile) {
  const int lane = lane_of_warp();
  return tile + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8;
}

// Starts the copy of rows [begin, begin + rows) of a head; those from `end` on are zeros, and so
// are the numbers from `head_size` up to D.
template <class S, int rows>
__device__ __forceinline__ void copy_tile_rows(bf16* to, const HeadRows<const bf16>& from,
                                               int begin, int end, int head_size) {
  constexpr int lanes = S::D % 64 == 0 ? 8 : 4, step = S::threads / lanes;
  static_assert(rows % step == 0);
  const int first = static_cast<int>(threadIdx.x) / lanes;
  const int column = static_cast<int>(threadIdx.x) % lanes * 8;
  to += first * S::stride + column;
  const bf16* source = from.at(begin + first) + column;
#pragma unroll
  for (int r = 0; r < rows; r += step, source += step * from.stride) {
    const bool in_range = begin + first + r < end;
#pragma unroll
    for (int d = 0; d < S::D; d += lanes * 8) {
      copy_async<16>(to + r * S::stride + d, source + d, in_range && column + d < head_size);
    }
  }
}

// Results of a warp against n columns: [m][j][2 i + k] is row 16 m + 8 i + lane_row(), column
// 8 j + k + lane_column().
template <int M, int n>
using Results = float[M][n / 8][4];

template <int M, int n>
__device__ __forceinline__ void set_zero(Results<M, n>& x) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int j = 0; j < n / 8; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) x[m][j][k] = 0;
    }
  }
}

template <int M, int n>
__device__ __forceinline__ void scale_by(Results<M, n>& x, float factor) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int j = 0; j < n / 8; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) x[m][j][k] *= factor;
    }
  }
}

// The rows of a warp, as the left side of products over D.
template <class S>
struct OwnRows {
  const bf16* row;  // of the first fragment
  Fragment fragments[S::kept ? S::M : 1][S::kept ? S::D / 16 : 1];

  __device__ explicit OwnRows(const bf16* tile)
      : row(fragment_row<S::stride>(tile + warp_of_block() * S::warp_rows * S::stride)) {}

  __device__ Fragment read(int m, int d) const {
    return load_fragment(row + 16 * m * S::stride + 16 * d);
  }
  // Call it when the tile has arrived.
  __device__ void load() {
    if constexpr (S::kept) {
#pragma unroll
      for (int m = 0; m < S::M; ++m) {
#pragma unroll
        for (int d = 0; d < S::D / 16; ++d) fragments[m][d] = read(m, d);
      }
    }
  }
  __device__ Fragment at(int m, int d) const {
    if constexpr (S::kept) {
      return fragments[m][d];
    } else {
      return read(m, d);
    }
  }
};

// c = a b^T, for rows of D numbers.
template <class S>
__device__ __forceinline__ void multiply_rows(Results<S::M, S::N>& c, const OwnRows<S>& a,
                                              const bf16* b) {
  b = right_row<S::stride>(b);
#pragma unroll
  for (int d = 0; d < S::D / 16; ++d) {
    Fragment left[S::M];
#pragma unroll
    for (int m = 0; m < S::M; ++m) left[m] = a.at(m, d);
#pragma unroll
    for (int j = 0; j < S::N / 16; ++j) {
      const Fragment right = load_fragment(b + 16 * j * S::stride + 16 * d);
#pragma unroll
      for (int m = 0; m < S::M; ++m) {
        if (d == 0) {
          multiply(c[m][2 * j], left[m], right.at[0], right.at[1]);
          multiply(c[m][2 * j + 1], left[m], right.at[2], right.at[3]);
        } else {
          multiply_add(c[m][2 * j], left[m], right.at[0], right.at[1]);
          multiply_add(c[m][2 * j + 1], left[m], right.at[2], right.at[3]);
        }
      }
    }
  }
}

// sum += w b, for rows of D numbers, with w rounded to bf16.
template <class S>
__device__ __forceinline__ void add_weighted_rows(Results<S::M, S::D>& sum,
                                                  const Results<S::M, S::N>& w, const bf16* b) {
  b = fragment_row<S::stride>(b);
#pragma unroll
  for (int j = 0; j < S::N / 16; ++j) {
    Fragment left[S::M];
#pragma unroll
    for (int m = 0; m < S::M; ++m) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* const pair = &w[m][2 * j + k / 2][k % 2 * 2];
        left[m].at[k] = round_pair(pair[0], pair[1]);
      }
    }
#pragma unroll
    for (int d = 0; d < S::D / 16; ++d) {
      const Fragment right = load_fragment_transposed(b + 16 * j * S::stride + 16 * d);
#pragma unroll
      for (int m = 0; m < S::M; ++m) {
        multiply_add(sum[m][2 * d], left[m], right.at[0], right.at[1]);
        multiply_add(sum[m][2 * d + 1], left[m], right.at[2], right.at[3]);
      }
    }
  }
}

// The heads that the kernels work on, and what a query sees.  A score is -infinity where the query
// does not see the key.
struct TensorHeads {
  HeadArray<const bf16> queries, keys, values;
  const int* first;  // (B, T), or null
  unsigned B, H, Hkv;
  int T, D;
  bool causal;
  // Scores are to the base 2, and scaled by |scale|; a negative scale negates q.
  bool negative;
  float scale;  // times log2 e; not 0, so that -infinity remains what it is

  __device__ unsigned group() const { return H / Hkv; }
  __device__ const int* firsts(unsigned b) const {
    return first ? first + int64_t{b} * T : nullptr;
  }
  __device__ int first_query() const { return 0; }
};

TensorHeads tensor_heads(const View& qkv, const View& first, const AttentionExtents&, Mask,
                         double scale);

// Which keys the queries of a warp see, from first to last.  Queries beyond the last token see what
// the last one sees.
template <class S>
struct QueryMask {
  int begin, T;  // of the warp
  bool causal;
  int first[S::M][2];
  int min_first_key = 0, max_first_key = 0;

  template <class Heads>
  __device__ QueryMask(const Heads& all, unsigned b, int block_begin)
      : begin(block_begin + warp_of_block() * S::warp_rows), T(all.T), causal(all.causal) {
    const auto firsts = all.firsts(b);
#pragma unroll
    for (int m = 0; m < S::M; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        first[m][i] = firsts ? firsts[query(m, i)] : 0;
        min_first_key = m + i ? min(min_first_key, first[m][i]) : first[m][i];
        max_first_key = max(max_first_key, first[m][i]);
      }
    }
    if (!firsts) return;
    min_first_key = __reduce_min_sync(all_lanes, min_first_key);
    max_first_key = __reduce_max_sync(all_lanes, max_first_key);
  }
  __device__ int query(int m, int i) const {
    return min(begin + 16 * m + 8 * i + lane_row(), T - 1);
  }
  __device__ int last(int query_or_more) const {
    return causal ? min(query_or_more, T - 1) : T - 1;
  }
  __device__ bool sees_some(int key) const {
    return key <= last(begin + S::warp_rows - 1) && key + S::N > min_first_key;
  }
  __device__ bool sees_all(int key) const {
    return key + S::N - 1 <= last(begin) && key >= max_first_key;
  }
  __device__ void hide(Results<S::M, S::N>& scores, int key) const {
    key += lane_column();
#pragma unroll
    for (int m = 0; m < S::M; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int from = first[m][i] - key, to = last(query(m, i)) - key;
#pragma unroll
        for (int j = 0; j < S::N / 8; ++j) {
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const int column = 8 * j + k;
            if (column < from || column > to) scores[m][j][2 * i + k] = -INFINITY;
          }
        }
      }
    }
  }
};

// A block's tile of queries of one head.  Tiles that see the most keys go first.
template <class S>
struct QueryPlace {
  unsigned head, b, h, kv;  // head b H + h
  int begin, end;           // queries
  int first_key, end_key;   // that some of them see

  template <class Heads>
  __device__ explicit QueryPlace(const Heads& all)
      : head(blockIdx.x % (all.B * all.H)),
        b(head / all.H),
        h(head % all.H),
        kv(h / all.group()),
        begin(all.first_query() +
              static_cast<int>((gridDim.x - 1 - blockIdx.x) / (all.B * all.H)) * S::rows),
        end(min(begin + S::rows, all.T)),
        first_key(min_first(all.firsts(b), begin, end)),
        end_key(all.causal ? end : all.T) {}

  // The m-th 16 of a warp's queries: the first, and how many of them exist.
  __device__ int row(int m) const { return begin + warp_of_block() * S::warp_rows + 16 * m; }
  __device__ int count(int m) const { return end - row(m); }
};

// Tiles of N rows of two heads, keys and values or queries and dy, in shared memory: the current
// ones and the next.
template <class S>
struct OtherTiles {
  HeadRows<const bf16> a, b;
  bf16* memory;
  int end, D;

  __device__ bf16* of_a(int stage) const { return memory + 2 * stage * S::other_tile; }
  __device__ bf16* of_b(int stage) const { return of_a(stage) + S::other_tile; }
  __device__ void copy(int begin, int stage) const {
    copy_tile_rows<S, S::N>(of_a(stage), a, begin, end, D);
    copy_tile_rows<S, S::N>(of_b(stage), b, begin, end, D);
  }
};

// Waits until a block's copies have arrived and the tiles before are no longer used.
__device__ __forceinline__ void wait_for_tiles() {
  wait_for_copies<0>();
  __syncthreads();
}

// Rows to write.
template <class G>
struct RowSink {
  G* data;
  int64_t stride;
  int count, D;
  bool accumulate;

  __device__ void put(int row, int d, const float* x) const {
    G* const to = data + row * stride + d;
    constexpr int size = Pack<G>::size;
#pragma unroll
    for (int part = 0; part < 8; part += size) {
      Pack<G> pack = {};
      if (accumulate) pack = load_pack_written(to + part);
#pragma unroll
      for (int k = 0; k < size; ++k) {
        const float before = accumulate ? to_float(pack.at[k]) : 0;
        pack.at[k] = from_float<G>(before + x[part + k]);
      }
      store_pack(to + part, pack);
    }
  }
};

// Writes a warp's 16 rows of D numbers through shared memory of its own, so that 16-byte stores
// follow each other.  The rows of its memory are 8 floats longer than D: then half a warp's pairs
// lie in different banks.
template <class S, class G>
__device__ void write_rows(const RowSink<G>& to, const float (&x)[S::D / 8][4], float* memory) {
  float* const place = memory + lane_row() * S::written_stride + lane_column();
#pragma unroll
  for (int j = 0; j < S::D / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<float2*>(place + 8 * i * S::written_stride + 8 * j) =
          make_float2(x[j][2 * i], x[j][2 * i + 1]);
    }
  }
  __syncwarp();
  constexpr int pieces = S::D / 8;
  for (int p = lane_of_warp(); p < 16 * pieces; p += warp_lanes) {
    const int row = p / pieces, d = p % pieces * 8;
    if (row >= to.count || d >= to.D) continue;
    const float* const from = memory + row * S::written_stride + d;
    const Four low = load_shared(from), high = load_shared(from + 4);
    const float all[8] = {low.at[0],  low.at[1],  low.at[2],  low.at[3],
                          high.at[0], high.at[1], high.at[2], high.at[3]};
    to.put(row, d, all);
  }
  __syncwarp();
}

// Calls f with the smallest head size that kernels are compiled for and that is at least D.
template <class F>
void dispatch_tensor_head(int64_t D, F&& f) {
  check(is_tensor_head_size(D), "attention on tensor cores: a head size of ", D,
        " is not a multiple of 16 up to ", max_tensor_head_size);
  if (D <= 32) return f(std::integral_constant<int, 32>());
  if (D <= 64) return f(std::integral_constant<int, 64>());
  if (D <= 96) return f(std::integral_constant<int, 96>());
  f(std::integral_constant<int, 128>());
}

}  // namespace spool::cuda
