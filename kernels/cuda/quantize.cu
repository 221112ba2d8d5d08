#include "spool/kernels/quantize.h"

#include "spool/kernels/cuda/device.cuh"

namespace spool {
namespace cuda {
namespace {

// A warp has a row.
constexpr int quantize_warps = 8;

template <class T>
__global__ void __launch_bounds__(quantize_warps* warp_lanes)
    quantize_rows(int8_t* q, float* scale, const T* x, int64_t N, int64_t C) {
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int64_t n = int64_t{blockIdx.x} * quantize_warps + threadIdx.x / warp_lanes;
  if (n >= N) return;
  const T* row = x + n * C;
  unsigned largest = 0;  // as integers, the bits of a NaN are above those of all numbers
  for (int64_t c = lane; c < C; c += warp_lanes) {
    largest = max(largest, __float_as_uint(to_float(row[c])) & 0x7fffffffu);
  }
#pragma unroll
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2) {
    largest = max(largest, __shfl_xor_sync(all_lanes, largest, offset));
  }
  const float unit = __uint_as_float(largest) / 127;
  if (lane == 0) scale[n] = unit;
  for (int64_t c = lane; c < C; c += warp_lanes) {
    q[n * C + c] = from_float<int8_t>(to_float(row[c]) / unit);  // of zeros NaN, which becomes 0
  }
}

template <class T>
__global__ void __launch_bounds__(quantize_warps* warp_lanes)
    dequantize_rows(T* x, const int8_t* q, const float* scale, int64_t N, int64_t C) {
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int64_t n = int64_t{blockIdx.x} * quantize_warps + threadIdx.x / warp_lanes;
  if (n >= N) return;
  const float unit = scale[n];
  for (int64_t c = lane; c < C; c += warp_lanes) {
    x[n * C + c] = from_float<T>(unit * to_float(q[n * C + c]));
  }
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
                        k.scale.as<float>(), k.x.as<T>(), N, C);
  });
}

void run(const Dequantize& k, CudaStream& stream) {
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
    if (N == 0) return;
    cuda::launch_kernel(stream, cuda::dequantize_rows<T>, cuda::rows_shape(N), k.x.as<T>(),
                        k.q.as<int8_t>(), k.scale.as<float>(), N, C);
  });
}

}  // namespace spool
