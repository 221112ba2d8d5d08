#pragma once

// The one header that a kernel file includes for CUDA: it includes CUDA's own headers under nvcc,
// and those of the emulator (tests/emulator) under a C++ compiler.  It also has what kernels share:
// launching, shared memory, scalars, 16-byte vectors, and sums over a warp and a block.
//
// Every kernel also runs on the emulator, by these rules: parameters are passed by value; shared
// memory is declared by the macros below; all threads of a block meet at the same barrier; masks
// name exactly the lanes that call; a __syncwarp() stands between lanes that exchange data through
// shared memory; blocks do not wait for each other.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "spool/runtime/check.h"
#include "spool/runtime/cuda/stream.h"
#include "spool/runtime/dtype.h"

// T name[n]; T name[n][m]; T* name, of the launch's size in bytes, aligned to 16.
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

// Lets a kernel have as much dynamic shared memory as a block can on the device; throws if `bytes`
// are more.  Asks CUDA once for each kernel and device.
void allow_shared(const CudaStream&, const void* kernel, size_t bytes);

struct LaunchShape {
  dim3 grid = {}, block = {};
  size_t shared = 0;  // bytes of dynamic shared memory
};

// Enqueues kernel(arguments...).  An error shows at the stream's next call.
template <class... P, class... A>
void launch_kernel(const CudaStream& stream, void (*kernel)(P...), const LaunchShape& shape,
                   const A&... arguments) {
  constexpr size_t max_default = 24 * 1024;  // half of 48 KiB, as static shared memory counts too
  if (shape.shared > max_default) {
    allow_shared(stream, reinterpret_cast<const void*>(kernel), shape.shared);
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
  check(t == DType::bf16, "a kernel on cuda takes f32 or bf16, not ", name(t),
        is_only_stored(t) ? "; convert it first" : "");
  f(__nv_bfloat16{});
}
// The same with the storage types.
template <class F>
void dispatch_stored(DType t, F&& f) {
  if (t == DType::f16) return f(__half{});
  if (t == DType::i8) return f(int8_t{});
  dispatch(t, f);
}

// Calls f with a value of the type of a gradient, which is T, the type of the values, or f32.
template <class T, class F>
void dispatch_gradient(DType t, F&& f) {
  if (t == DType::f32) return f(float{});
  check(t == (sizeof(T) == 2 ? DType::bf16 : DType::f32), "the gradient of ",
        name(sizeof(T) == 2 ? DType::bf16 : DType::f32),
        " values on cuda must have their type or f32, not ", name(t));
  f(T{});
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(int8_t x) { return static_cast<float>(x); }

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
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
// Rounds to the nearest, or to the end of the range; NaN becomes 0.
template <>
__device__ __forceinline__ int8_t from_float<int8_t>(float x) {
  const float nearest = rintf(fminf(fmaxf(x, -128.0f), 127.0f));
  return static_cast<int8_t>(x == x ? static_cast<int>(nearest) : 0);
}

// 16 bytes of T, the largest access of a thread.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

// Conversions between packs and the type that instructions move.
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

// Loads from memory that this launch does not write.
template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) {
  return pack_of<T>(__ldg(reinterpret_cast<const uint4*>(from)));
}
// Loads from memory that this launch may write.
template <class T>
__device__ __forceinline__ Pack<T> load_pack_written(const T* from) {
  return pack_of<T>(__ldcg(reinterpret_cast<const uint4*>(from)));
}

// Loads that are zeros unless `in_range`, as bits.  Unpacking waits for the load; as bits, several
// loads are in flight at a time.
#define SPOOL_LOADS_IF(name, intrinsic)                                   \
  template <class Word>                                                   \
  __device__ __forceinline__ Word name(const Word* from, bool in_range) { \
    Word bits = {};                                                       \
    if (in_range) bits = intrinsic(from);                                 \
    return bits;                                                          \
  }
SPOOL_LOADS_IF(load_if, __ldg)
SPOOL_LOADS_IF(load_written_if, __ldcg)
SPOOL_LOADS_IF(load_streaming_if, __ldcs)
#undef SPOOL_LOADS_IF

template <class T>
__device__ __forceinline__ uint4 load_bits(const T* from, bool in_range) {
  return load_if(reinterpret_cast<const uint4*>(from), in_range);
}
template <class T>
__device__ __forceinline__ uint4 load_bits_written(const T* from, bool in_range) {
  return load_written_if(reinterpret_cast<const uint4*>(from), in_range);
}

template <class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) {
  __stcg(reinterpret_cast<uint4*>(to), bits_of(pack));
}

// Whether consecutive rows of `row` T from `data` on can be moved as packs.
template <class T>
bool packs(const void* data, int64_t row) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && row % Pack<T>::size == 0;
}

// The lane of this thread, in a block of one dimension.
__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x) % warp_lanes; }

// The sum over the 32 lanes of a warp, in a fixed order; every lane gets it.
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

// The sum over a block of whole warps; every thread gets it.  `scratch` has 32 elements of shared
// memory, and may be reused after the next barrier.
template <class T>
__device__ __forceinline__ T block_sum(T x, T* scratch) {
  x = warp_sum(x);
  const int lane = lane_of_warp();
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  T sum = 0;
  for (int i = 0; i < warps; ++i) sum += scratch[i];
  return sum;
}

}  // namespace spool::cuda
