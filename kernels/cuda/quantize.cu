#include "spool/kernels/quantize.h"

#include "spool/kernels/cuda/map.cuh"

namespace spool {
namespace cuda {
namespace {

// A warp has a row.
constexpr int quantize_warps = 8;

// The elements of a row, [begin, end) of `from`, by a warp: groups of eight from a multiple of
// eight on, where the memory of a row of any length is aligned, several of a lane under way at a
// time; and the others one by one.  Calls f(i, Raw of n elements).
template <class T, class F>
__device__ __forceinline__ void for_each_of_row(const T* from, int64_t begin, int64_t end,
                                                bool aligned, const F& f) {
  constexpr int step = warp_lanes * map_width, in_flight = 4;
  const int lane = lane_of_warp();
  int64_t first = (begin + map_width - 1) / map_width * map_width;
  if (!aligned || first > end) first = end;
  const int64_t last = first + (end - first) / map_width * map_width;
  for (int64_t i = begin + lane; i < first; i += warp_lanes) f(i, load_raw<1>(from + i));
  for (int64_t i = first + lane * map_width; i < last; i += in_flight * step) {
    Raw<map_width, T> raw[in_flight];
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      raw[u] = load_raw<map_width>(from + i + u * step, i + u * step < last);
    }
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      if (i + u * step < last) f(i + u * step, raw[u]);
    }
  }
  for (int64_t i = last + lane; i < end; i += warp_lanes) f(i, load_raw<1>(from + i));
}

template <class T>
__global__ void __launch_bounds__(quantize_warps* warp_lanes)
    quantize_rows(int8_t* q, float* scale, const T* x, int64_t N, int64_t C, bool aligned) {
  const int64_t n = int64_t{blockIdx.x} * quantize_warps + threadIdx.x / warp_lanes;
  if (n >= N) return;
  unsigned largest = 0;  // as integers, the bits of a NaN are above those of all numbers
  for_each_of_row(x, n * C, n * C + C, aligned, [&]<int width>(int64_t, const Raw<width, T>& raw) {
    const Floats<width> all = floats_of(raw);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      largest = max(largest, __float_as_uint(all.at[k]) & 0x7fffffffu);
    }
  });
#pragma unroll
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2) {
    largest = max(largest, __shfl_xor_sync(all_lanes, largest, offset));
  }
  const float unit = __fdiv_rn(__uint_as_float(largest), 127);
  if (lane_of_warp() == 0) scale[n] = unit;
  for_each_of_row(x, n * C, n * C + C, aligned,
                  [&]<int width>(int64_t i, const Raw<width, T>& raw) {
                    Floats<width> all = floats_of(raw);
#pragma unroll
                    for (int k = 0; k < width; ++k) all.at[k] = __fdiv_rn(all.at[k], unit);
                    store<width>(q + i, all);  // of zeros NaN, which becomes 0
                  });
}

template <class T>
__global__ void __launch_bounds__(quantize_warps* warp_lanes)
    dequantize_rows(T* x, const int8_t* q, const float* scale, int64_t N, int64_t C, bool aligned) {
  const int64_t n = int64_t{blockIdx.x} * quantize_warps + threadIdx.x / warp_lanes;
  if (n >= N) return;
  const float unit = scale[n];
  for_each_of_row(q, n * C, n * C + C, aligned,
                  [&]<int width>(int64_t i, const Raw<width, int8_t>& raw) {
                    Floats<width> all = floats_of(raw);
#pragma unroll
                    for (int k = 0; k < width; ++k) all.at[k] *= unit;
                    store<width>(x + i, all);
                  });
}

LaunchShape rows_shape(int64_t N) {
  return {.grid = dim3(unsigned(ceil_div<int64_t>(N, quantize_warps))),
          .block = dim3(quantize_warps * warp_lanes)};
}

}  // namespace
}  // namespace cuda

void run(const Quantize& k, CudaStream& stream) {
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
    if (N == 0) return;
    cuda::launch_kernel(stream, cuda::quantize_rows<T>, cuda::rows_shape(N), k.q.as<int8_t>(),
                        k.scale.as<float>(), k.x.as<T>(), N, C,
                        cuda::is_aligned(k.q) && cuda::is_aligned(k.x));
  });
}

void run(const Dequantize& k, CudaStream& stream) {
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
    if (N == 0) return;
    cuda::launch_kernel(stream, cuda::dequantize_rows<T>, cuda::rows_shape(N), k.x.as<T>(),
                        k.q.as<int8_t>(), k.scale.as<float>(), N, C,
                        cuda::is_aligned(k.q) && cuda::is_aligned(k.x));
  });
}

}  // namespace spool
