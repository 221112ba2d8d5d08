#pragma once

// The keywords and types of CUDA C++: qualifiers, which expand to nothing; vectors with CUDA's
// alignment; bfloat16; and the indices of the running thread.
//
// __shared__ is left undefined on purpose: execution.h has EMULATOR_SHARED.

#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

#define EMULATOR_VECTORS(T, name, alignment_2, alignment_4)          \
  struct alignas(alignment_2) name##2 {                              \
    T x, y;                                                          \
  };                                                                 \
  struct name##3 {                                                   \
    T x, y, z;                                                       \
  };                                                                 \
  struct alignas(alignment_4) name##4 {                              \
    T x, y, z, w;                                                    \
  };                                                                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(unsigned, uint, 8, 16)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(unsigned short, ushort, 4, 8)

struct alignas(16) double2 {
  double x, y;
};
inline double2 make_double2(double x, double y) { return {x, y}; }

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

struct __nv_bfloat16 {
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
struct __half {
  uint16_t bits;
};
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
using half = __half;

inline constexpr int warpSize = 32;
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
