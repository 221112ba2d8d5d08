#pragma once

// Element-wise kernels: a functor computes n elements from i on, for n = 8, which move as 16-byte
// accesses (8-byte ones for i8), and for n = 1, for unaligned memory and at the end.

#include "spool/kernels/cuda/device.cuh"
#include "spool/kernels/launch.h"

namespace spool::cuda {

constexpr int map_width = 8, map_block = 256;

// n elements in f32, the type they are computed in.
template <int n>
struct Floats {
  float at[n];
};

template <int n>
__device__ __forceinline__ Floats<n> repeated(float one) {
  Floats<n> all;
#pragma unroll
  for (int k = 0; k < n; ++k) all.at[k] = one;
  return all;
}

template <int n, class T>
__device__ __forceinline__ Floats<n> load(const T* from) {
  Floats<n> x;
  if constexpr (n == 1) {
    x.at[0] = to_float(*from);
  } else if constexpr (n * sizeof(T) == sizeof(uint2)) {
    const uint2 bits = __ldcs(reinterpret_cast<const uint2*>(from));
    T all[n];
    memcpy(all, &bits, sizeof bits);
#pragma unroll
    for (int k = 0; k < n; ++k) x.at[k] = to_float(all[k]);
  } else {
    static_assert(n % Pack<T>::size == 0);
#pragma unroll
    for (int p = 0; p < n; p += Pack<T>::size) {
      const Pack<T> pack = pack_of<T>(__ldcs(reinterpret_cast<const uint4*>(from + p)));
#pragma unroll
      for (int k = 0; k < Pack<T>::size; ++k) x.at[p + k] = to_float(pack.at[k]);
    }
  }
  return x;
}

// n elements as bits: what is loaded stays packed until it is used (load_if()).
template <int n, class T>
struct Raw {
  static constexpr size_t bytes = n * sizeof(T);
  using Word =
      std::conditional_t<n == 1, T, std::conditional_t<bytes == sizeof(uint2), uint2, uint4>>;
  static_assert(bytes % sizeof(Word) == 0);
  static constexpr int words = static_cast<int>(bytes / sizeof(Word));
  Word at[words];
};

template <int n, class T>
__device__ __forceinline__ Raw<n, T> load_raw(const T* from) {
  using Word = typename Raw<n, T>::Word;
  Raw<n, T> raw;
#pragma unroll
  for (int w = 0; w < Raw<n, T>::words; ++w) {
    if constexpr (n == 1) {
      raw.at[w] = *from;
    } else {
      raw.at[w] = __ldcs(reinterpret_cast<const Word*>(from) + w);
    }
  }
  return raw;
}
// Loads zeros unless `in_range`.
template <int n, class T>
__device__ __forceinline__ Raw<n, T> load_raw(const T* from, bool in_range) {
  using Word = typename Raw<n, T>::Word;
  Raw<n, T> raw = {};
#pragma unroll
  for (int w = 0; w < Raw<n, T>::words; ++w) {
    if constexpr (n == 1) {
      if (in_range) raw.at[w] = *from;
    } else {
      raw.at[w] = load_streaming_if(reinterpret_cast<const Word*>(from) + w, in_range);
    }
  }
  return raw;
}

template <int n, class T>
__device__ __forceinline__ Floats<n> floats_of(const Raw<n, T>& raw) {
  Floats<n> x;
  if constexpr (n > 1 && std::is_same_v<T, __nv_bfloat16>) {
    // bf16 are the upper halves of f32: one instruction each.
    uint32_t pairs[n / 2];
    memcpy(pairs, raw.at, sizeof pairs);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const uint32_t bits = k % 2 == 0 ? pairs[k / 2] << 16 : pairs[k / 2] & 0xffff0000u;
      memcpy(&x.at[k], &bits, sizeof bits);
    }
  } else {
    T all[n];
    memcpy(all, raw.at, sizeof all);
#pragma unroll
    for (int k = 0; k < n; ++k) x.at[k] = to_float(all[k]);
  }
  return x;
}

template <int n, class T>
__device__ __forceinline__ void store(T* to, const Floats<n>& x) {
  if constexpr (n == 1) {
    *to = from_float<T>(x.at[0]);
  } else if constexpr (n * sizeof(T) == sizeof(uint2)) {
    T all[n];
#pragma unroll
    for (int k = 0; k < n; ++k) all[k] = from_float<T>(x.at[k]);
    uint2 bits;
    memcpy(&bits, all, sizeof bits);
    __stcs(reinterpret_cast<uint2*>(to), bits);
  } else {
#pragma unroll
    for (int p = 0; p < n; p += Pack<T>::size) {
      Pack<T> pack;
#pragma unroll
      for (int k = 0; k < Pack<T>::size; ++k) pack.at[k] = from_float<T>(x.at[p + k]);
      __stcs(reinterpret_cast<uint4*>(to + p), bits_of(pack));
    }
  }
}

template <int n, class T>
__device__ __forceinline__ void store_raw(T* to, const Raw<n, T>& raw) {
  using Word = typename Raw<n, T>::Word;
#pragma unroll
  for (int w = 0; w < Raw<n, T>::words; ++w) {
    if constexpr (n == 1) {
      *to = raw.at[w];
    } else {
      __stcs(reinterpret_cast<Word*>(to) + w, raw.at[w]);
    }
  }
}

// Destination of a gradient: elements are stored or added to what is there.  A kernel that reads
// other memory too loads what is there with the rest, by before().
template <class T>
struct Sink {
  T* data = nullptr;
  bool accumulate = false;

  Sink() = default;
  explicit Sink(const Grad& g) : data(g.view.as<T>()), accumulate(g.accumulate) {}

  template <int n>
  __device__ __forceinline__ void put(int64_t i, Floats<n> x) const {
    if (accumulate) {
      const Floats<n> before = load<n>(data + i);
#pragma unroll
      for (int k = 0; k < n; ++k) x.at[k] += before.at[k];
    }
    store<n>(data + i, x);
  }

  template <int n>
  __device__ __forceinline__ Raw<n, T> before(int64_t i, bool in_range = true) const {
    return load_raw<n>(data + i, accumulate && in_range);
  }
  template <int n>
  __device__ __forceinline__ void put(int64_t i, Floats<n> x, const Raw<n, T>& raw) const {
    if (accumulate) {
      const Floats<n> before = floats_of(raw);
#pragma unroll
      for (int k = 0; k < n; ++k) x.at[k] += before.at[k];
    }
    store<n>(data + i, x);
  }
};

template <class F>
__global__ void __launch_bounds__(map_block) map_kernel(F f, int64_t count, bool aligned) {
  const int64_t thread = int64_t{blockIdx.x} * map_block + threadIdx.x;
  const int64_t begin = thread * map_width;
  if (aligned && begin + map_width <= count) {
    f.template apply<map_width>(begin);
  } else {
    const int64_t end = begin + map_width < count ? begin + map_width : count;
    for (int64_t i = begin; i < end; ++i) f.template apply<1>(i);
  }
}

inline bool is_aligned(const View& v) { return reinterpret_cast<uintptr_t>(v.data()) % 16 == 0; }

// Calls f.apply<n>(i) for all elements [0, count); `views` are the tensors it reads and writes.
// `wide` is whether 8 elements may be accessed at once, as far as others are concerned.
template <class F, class... Views>
void map(CudaStream& stream, int64_t count, const F& f, bool wide, const Views&... views) {
  if (count == 0) return;
  const bool aligned = wide && (is_aligned(views) && ...);
  const int64_t blocks = ceil_div<int64_t>(count, int64_t{map_block} * map_width);
  launch_kernel(stream, map_kernel<F>, {.grid = dim3(unsigned(blocks)), .block = dim3(map_block)},
                f, count, aligned);
}
template <class F, class... Views>
void map(CudaStream& stream, int64_t count, const F& f, const View& view, const Views&... views) {
  map(stream, count, f, /*wide=*/true, view, views...);
}

}  // namespace spool::cuda
