#pragma once

// Typical kernels, each in a right form (Bug::none) and with single bugs that the emulator must
// find. All read n numbers `in` and write `out`.

#include "emulator.h"

namespace emulator::planted {

enum class Bug {
  none,
  no_barrier_before_reading,
  no_barrier_before_writing,
  reads_past_the_end,
  writes_past_shared,
  barrier_for_some,
  barrier_in_two_places,
  mask_of_half,
  sum_of_half,
  shuffles_apart,
  reads_unwritten,
  leaves_early,
  writes_past_dynamic,
  barrier_of_warp_only,
  mask_past_the_block,
  lanes_leave,
  no_barrier_of_warp,
  adds_without_atomic,
  vector_past_the_end,
  misaligned_vector,
  product_of_half,
  misaligned_matrix,
  no_barrier_before_matrix,
  no_wait_for_copies,
  no_wait_for_last_copies,
  no_barrier_after_copies,
  copies_too_early,
  shares_a_byte,
};

inline float sum_of_warp(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

template <Bug bug>
__device__ float sum_over_lanes(float x) {
  if constexpr (bug == Bug::mask_of_half) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffu, x, offset);
  } else if constexpr (bug == Bug::sum_of_half) {
    for (int offset = 8; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  } else if constexpr (bug == Bug::shuffles_apart) {
    if (threadIdx.x % 32 < 16) {
      x += __shfl_xor_sync(~0u, x, 8);
    } else {
      x += __shfl_xor_sync(~0u, x, 8);
    }
  } else {
    x = sum_of_warp(x);
  }
  return x;
}

template <Bug bug>
__device__ void barrier_between() {
  const unsigned warp = threadIdx.x / 32;
  if constexpr (bug == Bug::barrier_for_some) {
    if (warp != 3) __syncthreads();
  } else if constexpr (bug == Bug::barrier_in_two_places) {
    if (warp % 2) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  } else if constexpr (bug != Bug::no_barrier_before_reading) {
    __syncthreads();
  }
}

// Deadlocks: one lane waits for its warp, the others for the block.
inline __global__ void wait_for_one_another(const float*, float*, int) {
  if (threadIdx.x == 0) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// More static shared memory than the 48 KiB of a block.
inline __global__ void ask_for_much(const float* in, float* out, int) {
  EMULATOR_SHARED(float[12 << 10], much);
  EMULATOR_SHARED(float, more);
  more = much[threadIdx.x] = *in;
  *out = more;
}

// out[0] = 3 Σ in, by a block of up to 8 warps, which sums twice.
template <Bug bug>
__global__ void sum(const float* in, float* out, int n) {
  EMULATOR_SHARED(float[8], sums);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int end = bug == Bug::reads_past_the_end ? n + 1 : n;
  float total = 0;
  for (int round = 1; round <= 2; ++round) {
    float x = 0;
    for (int i = thread; i < end; i += static_cast<int>(blockDim.x)) {
      x += in[i] * static_cast<float>(round);
    }
    x = sum_over_lanes<bug>(x);
    if (thread % 32 == 0) sums[bug == Bug::writes_past_shared ? warp + 1 : warp] = x;
    barrier_between<bug>();
    if (bug == Bug::leaves_early && thread >= 250) return;
    for (int w = 0; w < (bug == Bug::reads_unwritten ? 8 : warps); ++w) total += sums[w];
    if constexpr (bug != Bug::no_barrier_before_writing) __syncthreads();
  }
  if (thread == 0) *out = total;
}

// out[i] = in[n - 1 - i], by one block of n threads, through dynamic shared memory.
template <Bug bug>
__global__ void reverse(const float* in, float* out, int n) {
  auto* all = static_cast<float*>(dynamic_shared());
  const int thread = static_cast<int>(threadIdx.x);
  all[bug == Bug::writes_past_dynamic ? thread + 1 : thread] = in[thread];
  if constexpr (bug == Bug::barrier_of_warp_only) {
    __syncwarp();
  } else {
    __syncthreads();
  }
  out[thread] = all[n - 1 - thread];
}

// out[w] = sum of the numbers of warp w in a block of 100 threads; the last warp has four lanes.
template <Bug bug>
__global__ void sum_with_tail(const float* in, float* out, int n) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  if (bug == Bug::lanes_leave && thread >= n) return;
  float x = thread < n ? in[thread] : 0;
  if constexpr (bug == Bug::mask_past_the_block || bug == Bug::lanes_leave) {
    x = sum_of_warp(x);
  } else {
    const unsigned mask = warp == 3 ? 0xfu : ~0u;
    for (int offset = warp == 3 ? 2 : 16; offset > 0; offset /= 2) {
      x += __shfl_xor_sync(mask, x, offset);
    }
  }
  if (thread % 32 == 0) out[warp] = x;
}

// out[i] = in[(i + 5) % 32], by one warp, through shared memory.
template <Bug bug>
__global__ void exchange(const float* in, float* out, int) {
  EMULATOR_SHARED(float[32], all);
  all[threadIdx.x] = in[threadIdx.x];
  if constexpr (bug != Bug::no_barrier_of_warp) __syncwarp();
  out[threadIdx.x] = all[(threadIdx.x + 5) % 32];
}

// out[c] += Σ_i in[i, c] over n rows, which the blocks divide.
template <Bug bug>
__global__ void sum_of_rows(const float* in, float* out, int n) {
  float x = 0;
  for (int i = static_cast<int>(blockIdx.x); i < n; i += static_cast<int>(gridDim.x)) {
    x += in[i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)];
  }
  if constexpr (bug == Bug::adds_without_atomic) {
    out[threadIdx.x] += x;
  } else {
    atomicAdd(out + threadIdx.x, x);
  }
}

// Byte i of out = in[i], by one block of n threads.
template <Bug bug>
__global__ void write_bytes(const float* in, float* out, int) {
  const unsigned i = bug == Bug::shares_a_byte ? threadIdx.x / 2 : threadIdx.x;
  reinterpret_cast<int8_t*>(out)[i] = static_cast<int8_t>(in[threadIdx.x]);
}

// out = in, four numbers at a time and the rest singly.
template <Bug bug>
__global__ void copy(const float* in, float* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (bug == Bug::vector_past_the_end ? i < n : i + 3 < n) {
    const float* from = in + i + (bug == Bug::misaligned_vector ? 1 : 0);
    __stcs(reinterpret_cast<float4*>(out + i), __ldcs(reinterpret_cast<const float4*>(from)));
  } else {
    for (int k = i; k < n; ++k) out[k] = in[k];
  }
}

// out (16, 8) = a b for a (16, 16) and b (16, 8), which follow each other in `in`, by one warp.
template <Bug bug>
__global__ void multiply(const float* in, float* out, int) {
  EMULATOR_SHARED(uint4[50], memory);
  auto* const a = reinterpret_cast<__nv_bfloat16*>(memory);
  __nv_bfloat16* const b = a + 256;
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 384; i += 32) a[i] = __float2bfloat16_rn(in[i]);
  if constexpr (bug != Bug::no_barrier_before_matrix) __syncwarp();
  const int off = bug == Bug::misaligned_matrix ? 4 : 0;
  uint32_t left[4], right[4];
  load_matrices(left, a + lane % 16 * 16 + lane / 16 * 8 + off, /*transposed=*/false);
  load_matrices(right, b + lane % 16 * 8, /*transposed=*/true);
  float c[4] = {};
  if (bug != Bug::product_of_half || lane < 16) multiply_matrices(c, left, right[0], right[1]);
  for (int i = 0; i < 4; ++i) out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
}

// out[i] = in[n - 1 - i], by one block of n / 4 threads, in two rounds of four bytes and of sixteen
// through the same shared memory.
template <Bug bug>
__global__ void reverse_copies(const float* in, float* out, int n) {
  auto* all = static_cast<float*>(dynamic_shared());
  const int thread = static_cast<int>(threadIdx.x), threads = n / 4;
  for (int i = thread; i < n / 2; i += threads) {
    copy_async<4>(all + i, in + i, true);
    end_copies();
  }
  if constexpr (bug != Bug::no_wait_for_copies) {
    wait_for_copies(bug == Bug::no_wait_for_last_copies ? 1 : 0);
  }
  if constexpr (bug != Bug::no_barrier_after_copies) __syncthreads();
  for (int i = 0; i < n / 2; i += threads) out[n / 2 + thread + i] = all[n / 2 - 1 - thread - i];
  if constexpr (bug != Bug::copies_too_early) __syncthreads();
  if (thread < threads / 2) copy_async<16>(all + 4 * thread, in + n / 2 + 4 * thread, true);
  end_copies();
  wait_for_copies(0);
  __syncthreads();
  for (int i = 0; i < n / 2; i += threads) out[thread + i] = all[n / 2 - 1 - thread - i];
}

}  // namespace emulator::planted
