#pragma once

// Instructions that CUDA C++ has no functions for (PTX ISA; compute capability 8.0 and up):
// products of small bf16 matrices on tensor cores and the loads that feed them, which the 32 lanes
// of a warp call together; copies into shared memory that run beside the program; and 2^x.
//
// Lanes hold a matrix in pieces of 8 x 8: lane l has the numbers of row l / 4, columns 2 (l % 4)
// and the next.

#include "spool/kernels/cuda/device.cuh"

namespace spool::cuda {

// 16 x 16 numbers of bf16, two in each word, the first in its low half: rows 0-7 and rows 8-15 of
// columns 0-7, then of columns 8-15.
struct Fragment {
  uint32_t at[4];
};

#if defined(__CUDACC__)
__device__ __forceinline__ unsigned shared_address(const void* memory) {
  return static_cast<unsigned>(__cvta_generic_to_shared(memory));
}
#endif

// A fragment of shared memory.  Lanes 8 i to 8 i + 7 pass the addresses of the rows of its i-th 8 x
// 8 matrix, multiples of 16 bytes: for the order above, lane l that of row l % 16, column 8 (l /
// 16).
__device__ __forceinline__ Fragment load_fragment(const __nv_bfloat16* row) {
  Fragment x;
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3])
               : "r"(shared_address(row)));
#else
  emulator::load_matrices(x.at, row, /*transposed=*/false);
#endif
  return x;
}

// The same, with each of the four 8 x 8 matrices transposed, at its place.
__device__ __forceinline__ Fragment load_fragment_transposed(const __nv_bfloat16* row) {
  Fragment x;
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3])
               : "r"(shared_address(row)));
#else
  emulator::load_matrices(x.at, row, /*transposed=*/true);
#endif
  return x;
}

// c += a b for c (16, 8) in f32, rows 0-7 in c[0] and c[1], rows 8-15 in c[2] and c[3]; a (16, 16);
// and b (16, 8) as its transpose: columns 0-7 of that, which are the first terms, then 8-15.
__device__ __forceinline__ void multiply_add(float (&c)[4], const Fragment& a, uint32_t b0,
                                             uint32_t b1) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
#else
  emulator::multiply_matrices(c, a.at, b0, b1);
#endif
}

// c = a b, of the same parts.
__device__ __forceinline__ void multiply(float (&c)[4], const Fragment& a, uint32_t b0,
                                         uint32_t b1) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1), "f"(0.0f));
#else
  c[0] = c[1] = c[2] = c[3] = 0;
  emulator::multiply_matrices(c, a.at, b0, b1);
#endif
}

// Copies 4 or 16 bytes, at a multiple of that, into shared memory, or writes zeros there unless
// `in_range`.  The bytes arrive some time before wait_for_copies() returns to this thread, and
// other threads may read them after a barrier.
template <int bytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool in_range) {
  static_assert(bytes == 4 || bytes == 16);
#if defined(__CUDACC__)
  const int read = in_range ? bytes : 0;
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(read)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(read)
                 : "memory");
  }
#else
  emulator::copy_async<bytes>(to, from, in_range);
#endif
}

// Ends a group of this thread's copies.
__device__ __forceinline__ void end_copies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulator::end_copies();
#endif
}

// Waits for this thread's groups of copies, but not for the last `but` of them.
template <int but>
__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(but) : "memory");
#else
  emulator::wait_for_copies(but);
#endif
}

// 2^x within 2^-22 of it; 0 where that is subnormal.
__device__ __forceinline__ float fast_exp2(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return emulator::exp2(x);
#endif
}

// Two numbers, rounded to bf16, in a word; x in its low half.
__device__ __forceinline__ uint32_t round_pair(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

}  // namespace spool::cuda
