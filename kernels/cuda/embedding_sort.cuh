#pragma once

// Sorts the positions of tokens by token, as kernels/embedding_sizes.h describes.

#include "spool/kernels/cuda/device.cuh"
#include "spool/kernels/embedding_sizes.h"
#include "spool/kernels/vocabulary_part.h"

namespace spool::cuda {

constexpr int sort_threads = 256, max_bins = 1 << TokenSort::max_digit_bits;
static_assert(TokenSort::piece_step == sort_threads);

struct TokenLists {
  const int32_t* tokens;
  int32_t *first_order, *second_order, *begins, *ends, *first_counts, *second_counts;
  int64_t zeros;
  int32_t N, V;
  uint32_t first;  // token of row 0
  int bins, digit_bits, piece, pieces;

  TokenLists(const TokenSort& sort, const View& all, const VocabularyPart& part, int32_t* workspace)
      : tokens(all.as<int32_t>()),
        first_order(workspace + sort.first_order()),
        second_order(workspace + sort.second_order()),
        begins(workspace + sort.begins()),
        ends(workspace + sort.ends()),
        first_counts(workspace + sort.first_counts()),
        second_counts(workspace + sort.second_counts()),
        zeros(sort.zeros()),
        N(static_cast<int32_t>(sort.N)),
        V(static_cast<int32_t>(sort.V)),
        first(static_cast<uint32_t>(part.first)),
        bins(static_cast<int>(sort.bins)),
        digit_bits(sort.digit_bits),
        piece(static_cast<int>(sort.piece)),
        pieces(static_cast<int>(sort.pieces)) {}

  // The row of the token at position n; V if it is outside the vocabulary or of another part of it,
  // for which no gradient is computed.
  __device__ __forceinline__ int token(int n) const {
    const uint32_t v = static_cast<uint32_t>(__ldg(tokens + n)) - first;
    return v < static_cast<uint32_t>(V) ? static_cast<int>(v) : V;
  }
  __device__ __forceinline__ int low_digit(int n) const { return token(n) & (bins - 1); }
  __device__ __forceinline__ int high_digit(int n) const { return token(n) >> digit_bits; }
  __device__ __forceinline__ int end_of_piece() const {
    const int64_t end = (int64_t{blockIdx.x} + 1) * piece;
    return end < N ? static_cast<int>(end) : N;
  }
};

// Block p: first_counts[p, d] = number of tokens of piece p with low digit d.  All blocks together
// clear `ends` and second_counts.
__global__ void __launch_bounds__(sort_threads) count_low_digits(TokenLists k) {
  SPOOL_SHARED(int, counts, max_bins);
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t i = int64_t{blockIdx.x} * sort_threads + thread; i < k.zeros;
       i += int64_t{gridDim.x} * sort_threads) {
    k.ends[i] = 0;
  }
  for (int d = thread; d < k.bins; d += sort_threads) counts[d] = 0;
  __syncthreads();
  const int end = k.end_of_piece();
  for (int n = static_cast<int>(blockIdx.x) * k.piece + thread; n < end; n += sort_threads) {
    atomicAdd(&counts[k.low_digit(n)], 1);
  }
  __syncthreads();
  if (static_cast<int>(blockIdx.x) >= k.pieces) return;
  for (int d = thread; d < k.bins; d += sort_threads) {
    k.first_counts[blockIdx.x * k.bins + d] = counts[d];
  }
}

// The sum of x over the threads before this one.  `scratch` has 32 elements of shared memory.
__device__ __forceinline__ int sum_before(int x, int* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  int sum = x;
#pragma unroll
  for (int by = 1; by < warp_lanes; by *= 2) {
    const int before = __shfl_up_sync(all_lanes, sum, by);
    if (lane >= by) sum += before;
  }
  if (lane == warp_lanes - 1) scratch[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += scratch[w];
  return sum - x;
}

// next[d] = place of the first token of this piece with digit d: after all tokens of lower digits
// and those of this digit in earlier pieces.  The next barrier of the caller orders what is in it.
__device__ __forceinline__ void find_places(const TokenLists& k, const int* counts, int* next,
                                            int* before) {
  SPOOL_SHARED(int, scratch, warp_lanes);
  const int thread = static_cast<int>(threadIdx.x);
  for (int d = thread; d < k.bins; d += sort_threads) {
    int total = 0, earlier = 0;
#pragma unroll 16
    for (int p = 0; p < k.pieces; ++p) {
      const int count = __ldg(counts + p * k.bins + d);
      total += count;
      if (p < static_cast<int>(blockIdx.x)) earlier += count;
    }
    next[d] = total;
    before[d] = earlier;
  }
  __syncthreads();
  const int each = ceil_div(k.bins, sort_threads);
  const int begin = min(thread * each, k.bins), end = min(begin + each, k.bins);
  int sum = 0;
  for (int d = begin; d < end; ++d) sum += next[d];
  int place = sum_before(sum, scratch);
  for (int d = begin; d < end; ++d) {
    const int total = next[d];
    next[d] = place + before[d];
    place += total;
  }
}

// The number of threads of a block with the same digit, and how many of them come before this one.
struct EqualDigits {
  int before = 0, all = 0;

  __device__ __forceinline__ EqualDigits(const int* digits, int digit) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 8
    for (int i = 0; i < sort_threads; ++i) {
      const int equal = digits[i] == digit;
      all += equal;
      if (i < thread) before += equal;
    }
  }
};

// Block p moves the tokens of piece p to the places of their digits, in order.
template <bool last>
__global__ void __launch_bounds__(sort_threads) move_tokens(TokenLists k) {
  SPOOL_SHARED(int, next, max_bins);
  SPOOL_SHARED(int, before, max_bins);
  SPOOL_SHARED(int, digits, sort_threads);
  find_places(k, last ? k.second_counts : k.first_counts, next, before);
  const int thread = static_cast<int>(threadIdx.x), end = k.end_of_piece();
  for (int start = static_cast<int>(blockIdx.x) * k.piece; start < end; start += sort_threads) {
    const bool in_range = thread < end - start;
    int n = 0, digit = -1;
    if (in_range) {
      n = last ? __ldg(k.first_order + start + thread) : start + thread;
      digit = last ? k.high_digit(n) : k.low_digit(n);
    }
    digits[thread] = digit;
    __syncthreads();
    const EqualDigits equal(digits, digit);
    if (in_range) {
      const int place = next[digit] + equal.before;
      (last ? k.second_order : k.first_order)[place] = n;
      if (!last) atomicAdd(k.second_counts + place / k.piece * k.bins + k.high_digit(n), 1);
    }
    __syncthreads();
    if (in_range && equal.before + 1 == equal.all) next[digit] += equal.all;
  }
}

inline void sort_tokens(const CudaStream& stream, const TokenLists& k) {
  const dim3 block(sort_threads), pieces{unsigned(k.pieces)};
  launch_kernel(stream, count_low_digits, {.grid = dim3(std::max(1u, pieces.x)), .block = block},
                k);
  if (k.pieces == 0) return;
  launch_kernel(stream, move_tokens<false>, {.grid = pieces, .block = block}, k);
  launch_kernel(stream, move_tokens<true>, {.grid = pieces, .block = block}, k);
}

}  // namespace spool::cuda
