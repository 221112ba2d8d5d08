#pragma once

// The one header a kernel file includes for CUDA: CUDA's own under nvcc, the emulator's
// (tests/emulator) under a C++ compiler.  With it, what kernels share: launching, shared memory,
// scalars, 16-byte vectors, and sums over a warp and a block.
//
// Rules, which let every kernel run on the emulator too: parameters by value; shared memory through
// the macros below; barriers at one place for the whole block; masks that name exactly the lanes
// that call; a __syncwarp() between lanes that exchange through shared memory; no waiting between
// blocks.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "spool/runtime/check.h"
#include "spool/runtime/cuda/stream.h"
#include "spool/runtime/dtype.h"

// T name[n]; T name[n][m]; T* name, as many bytes as the launch says, aligned to 16.
#if defined(__CUDACC__)
#define SPOOL_SHARED(T, name, n) __shared__ T name[n]
#define SPOOL_SHARED_2D(T, name, n, m) __shared__ T name[n][m]
#define SPOOL_SHARED_DYNAMIC(T, name)                                  \
  extern __shared__ __align__(16) unsigned char spool_shared_memory[]; \
  T* name = reinterpret_cast<T*>(spool_shared_memory)
#else
#define SPOOL_SHARED(T, name, n) EMULATOR_SHARED(T[n], name)
#define SPOOL_SHARED_2D(T, name, n, m) EMULATOR_SHARED(T[n][m], name)
#define SPOOL_SHARED_DYNAMIC(T, name) T* name = static_cast<T*>(emulator::dynamic_shared())
#endif

namespace spool::cuda {

constexpr int warp_lanes = 32;
constexpr unsigned all_lanes = 0xffffffffu;

template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

struct LaunchShape {
  dim3 grid = {}, block = {};
  size_t shared = 0;  // bytes of dynamic shared memory
};

// Enqueues kernel(arguments...).  What goes wrong shows at the stream's next call.
template <class... P, class... A>
void launch_kernel(const CudaStream& stream, void (*kernel)(P...), const LaunchShape& shape,
                   const A&... arguments) {
  constexpr size_t unasked = 24 * 1024;  // static memory counts too: of 48 KiB no more than half
  if (shape.shared > unasked) {
    (void)cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared;
  config.stream = static_cast<cudaStream_t>(stream.native());
  (void)cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

// Calls f with a value of the C++ type of a dtype: dispatch(t, [&](auto x) { ... }).
template <class F>
void dispatch(DType t, F&& f) {
  if (t == DType::f32) return f(float{});
  check(t == DType::bf16, "a kernel on cuda got ", name(t), ", and takes f32 and bf16");
  f(__nv_bfloat16{});
}

// Likewise for a gradient, whose type may be that of the values or f32.
template <class T, class F>
void dispatch_gradient(DType t, F&& f) {
  if (t == DType::f32) return f(float{});
  check(t == (sizeof(T) == 2 ? DType::bf16 : DType::f32), "a gradient on cuda cannot be ", name(t));
  f(T{});
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// As many T as fit in 16 bytes, which is what a thread moves at a time.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

// As the instructions that move them have them.
template <class T>
__device__ __forceinline__ Pack<T> pack_of(const uint4& bits) {
  Pack<T> pack;
  memcpy(&pack, &bits, sizeof bits);
  return pack;
}
template <class T>
__device__ __forceinline__ uint4 bits_of(const Pack<T>& pack) {
  uint4 bits;
  memcpy(&bits, &pack, sizeof bits);
  return bits;
}

// Of memory that this launch does not write.
template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) {
  return pack_of<T>(__ldg(reinterpret_cast<const uint4*>(from)));
}
// Of memory that it does.
template <class T>
__device__ __forceinline__ Pack<T> load_pack_written(const T* from) {
  return pack_of<T>(__ldcg(reinterpret_cast<const uint4*>(from)));
}
template <class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) {
  __stcg(reinterpret_cast<uint4*>(to), bits_of(pack));
}

// Whether rows of so many T, one after the other from here, can be moved as packs.
template <class T>
bool packs(const void* data, int64_t row) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && row % Pack<T>::size == 0;
}

// Over the 32 lanes of a warp, every lane gets it; in an order fixed by the lanes.
template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(all_lanes, x, offset);
  }
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(all_lanes, x, offset));
  }
  return x;
}

// Over a block of whole warps; every thread gets it.  `scratch` is shared, of 32, and may be used
// again after the next barrier.
template <class T>
__device__ __forceinline__ T block_sum(T x, T* scratch) {
  x = warp_sum(x);
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  T sum = 0;
  for (int i = 0; i < warps; ++i) sum += scratch[i];
  return sum;
}

}  // namespace spool::cuda
