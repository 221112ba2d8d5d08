#include "spool/kernels/elementwise.h"

#include "spool/kernels/cuda/map.cuh"

namespace spool {
namespace cuda {
namespace {

template <class T>
struct FillEach {
  T* out;
  float value;
  template <int n>
  __device__ void apply(int64_t i) const {
    store<n>(out + i, repeated<n>(value));
  }
};

template <class T, class Out>
struct AddEach {
  Sink<Out> out;
  const T *a, *b;
  template <int n>
  __device__ void apply(int64_t i) const {
    const Raw<n, T> raw_a = load_raw<n>(a + i), raw_b = load_raw<n>(b ? b + i : a, b);
    const Raw<n, Out> before = out.template before<n>(i);
    Floats<n> x = floats_of(raw_a);
    if (b) {
      const Floats<n> y = floats_of(raw_b);
#pragma unroll
      for (int k = 0; k < n; ++k) x.at[k] += y.at[k];
    }
    out.put(i, x, before);
  }
};

template <class T>
struct ScaleEach {
  Sink<T> out;
  const T* a;
  float factor;
  const float* by;
  template <int n>
  __device__ void apply(int64_t i) const {
    const Raw<n, T> raw = load_raw<n>(a + i), before = out.template before<n>(i);
    const float all = by ? factor * *by : factor;
    Floats<n> x = floats_of(raw);
#pragma unroll
    for (int k = 0; k < n; ++k) x.at[k] *= all;
    out.put(i, x, before);
  }
};

template <class In, class Out>
struct CastEach {
  Out* out;
  const In* in;
  template <int n>
  __device__ void apply(int64_t i) const {
    store<n>(out + i, load<n>(in + i));
  }
};

__global__ void fill_double(double* out, double value, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = value;
}

}  // namespace
}  // namespace cuda

void run(const Fill& k, CudaStream& stream) {
  const int64_t count = k.out.numel();
  if (k.out.dtype() == DType::f64) {  // a scalar that a sum is added to
    if (count == 0) return;
    const auto blocks = unsigned(cuda::ceil_div<int64_t>(count, cuda::map_block));
    return cuda::launch_kernel(stream, cuda::fill_double,
                               {.grid = dim3(blocks), .block = dim3(cuda::map_block)},
                               k.out.as<double>(), k.value, count);
  }
  cuda::dispatch(k.out.dtype(), [&](auto x) {
    using T = decltype(x);
    cuda::map(stream, count, cuda::FillEach<T>{k.out.as<T>(), k.value}, k.out);
  });
}

void run(const Add& k, CudaStream& stream) {
  cuda::dispatch(k.a.dtype(), [&](auto x) {
    using T = decltype(x);
    cuda::dispatch_gradient<T>(k.out.view.dtype(), [&](auto y) {
      using Out = decltype(y);
      cuda::map(stream, k.a.numel(),
                cuda::AddEach<T, Out>{cuda::Sink<Out>(k.out), k.a.as<T>(), k.b.as<T>()}, k.out.view,
                k.a, k.b);
    });
  });
}

void run(const Scale& k, CudaStream& stream) {
  cuda::dispatch(k.a.dtype(), [&](auto x) {
    using T = decltype(x);
    const cuda::ScaleEach<T> each{cuda::Sink<T>(k.out), k.a.as<T>(), static_cast<float>(k.factor),
                                  k.by.as<float>()};
    cuda::map(stream, k.a.numel(), each, k.out.view, k.a);
  });
}

void run(const Cast& k, CudaStream& stream) {
  cuda::dispatch_stored(k.in.dtype(), [&](auto x) {
    cuda::dispatch_stored(k.out.dtype(), [&](auto y) {
      using In = decltype(x);
      using Out = decltype(y);
      cuda::map(stream, k.in.numel(), cuda::CastEach<In, Out>{k.out.as<Out>(), k.in.as<In>()},
                k.out, k.in);
    });
  });
}

}  // namespace spool
