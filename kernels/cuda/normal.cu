#include "spool/kernels/normal.h"

#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/cuda/philox.cuh"

namespace spool {
namespace cuda {
namespace {

// log((w + 1) 2^-32) to f32 precision.  Near 1 it is computed from the distance to 1, which an f32
// represents exactly enough.
__device__ __forceinline__ float log_of_word(uint32_t w) {
  constexpr float unit = 0x1p-32f;
  if (w < 0x80000000u) return logf(static_cast<float>(w + 1) * unit);
  return log1pf(-static_cast<float>(~w) * unit);
}

__device__ __forceinline__ void two_normals(uint32_t a, uint32_t b, float* z) {
  const float radius = sqrtf(-2 * log_of_word(a));
  // The angle from a signed word, in -pi to pi, where an f32 is more precise.
  float sine, cosine;
  sincospif(static_cast<float>(static_cast<int32_t>(b)) * 0x1p-31f, &sine, &cosine);
  z[0] = radius * cosine;
  z[1] = radius * sine;
}

template <class T>
struct NormalEach {
  T* out;
  float deviation;
  uint2 key;
  uint32_t tensor;
  int64_t first;

  __device__ __forceinline__ void block(int64_t j, float* z) const {
    const uint4 w = philox(
        key, make_uint4(static_cast<uint32_t>(j), static_cast<uint32_t>(j >> 32), tensor, 0));
    two_normals(w.x, w.y, z);
    two_normals(w.z, w.w, z + 2);
  }

  template <int n>
  __device__ void apply(int64_t i) const {
    Floats<n> x;
    if constexpr (n == 1) {
      float z[4];
      block((first + i) / 4, z);
      const int word = static_cast<int>(i % 4);
      x.at[0] = deviation * (word < 2 ? (word == 0 ? z[0] : z[1]) : (word == 2 ? z[2] : z[3]));
    } else {
#pragma unroll
      for (int k = 0; k < n; k += 4) block((first + i + k) / 4, x.at + k);
#pragma unroll
      for (int k = 0; k < n; ++k) x.at[k] *= deviation;
    }
    store<n>(out + i, x);
  }
};

}  // namespace
}  // namespace cuda

void run(const NormalFill& k, CudaStream& stream) {
  const PhiloxKey key = philox_key(k.seed);
  cuda::dispatch(k.out.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const cuda::NormalEach<T> each{.out = k.out.as<T>(),
                                   .deviation = k.deviation,
                                   .key = make_uint2(key[0], key[1]),
                                   .tensor = k.tensor,
                                   .first = k.first};
    cuda::map(stream, k.out.numel(), each, k.out);
  });
}

}  // namespace spool
