#include "spool/kernels/gelu.h"

#include <numbers>

#include "spool/kernels/cuda/map.cuh"

namespace spool {
namespace cuda {
namespace {

// y = x cdf(x) and y' = cdf(x) + x density(x), as in kernels/cpu/gelu.cpp.  The fast exponential
// has a relative error of about 2^-21 where the result is not negligible, and keeps the kernel
// bound by memory.

struct Tanh {
  static constexpr float twice_root = 1.5957691216057307f;  // 2 sqrt(2/pi)
  static constexpr float cubic = 0.044715f;

  static __device__ __forceinline__ float cdf(float x) {
    return __fdividef(1.0f, 1 + __expf(-twice_root * (x + cubic * x * x * x)));
  }
  static __device__ __forceinline__ float density(float x, float cdf) {
    return cdf * (1 - cdf) * twice_root * (1 + 3 * cubic * x * x);
  }
};

struct Exact {
  static constexpr float root_half = static_cast<float>(std::numbers::sqrt2 / 2);
  static constexpr float peak = static_cast<float>(std::numbers::inv_sqrtpi) * root_half;

  static __device__ __forceinline__ float cdf(float x) { return 0.5f * erfcf(-root_half * x); }
  static __device__ __forceinline__ float density(float x, float) {
    return peak * __expf(-0.5f * x * x);
  }
};

template <class Form, class T>
struct ForwardEach {
  T* y;
  const T* x;
  template <int n>
  __device__ void apply(int64_t i) const {
    Floats<n> at = load<n>(x + i);
#pragma unroll
    for (int k = 0; k < n; ++k) at.at[k] *= Form::cdf(at.at[k]);
    store<n>(y + i, at);
  }
};

template <class Form, class T, class Out>
struct BackwardEach {
  Sink<Out> dx;
  const T *dy, *x;
  template <int n>
  __device__ void apply(int64_t i) const {
    const Floats<n> at = load<n>(x + i);
    Floats<n> out = load<n>(dy + i);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const float cdf = Form::cdf(at.at[k]);
      out.at[k] *= cdf + at.at[k] * Form::density(at.at[k], cdf);
    }
    dx.put(i, out);
  }
};

template <class F>
void dispatch_form(GeluForm form, F&& f) {
  if (form == GeluForm::exact) return f(Exact{});
  f(Tanh{});
}

}  // namespace
}  // namespace cuda

void run(const GeluForward& k, CudaStream& stream) {
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cuda::dispatch_form(k.form, [&](auto form) {
      const cuda::ForwardEach<decltype(form), T> each{k.y.as<T>(), k.x.as<T>()};
      cuda::map(stream, k.x.numel(), each, k.y, k.x);
    });
  });
}

void run(const GeluBackward& k, CudaStream& stream) {
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cuda::dispatch_gradient<T>(k.dx.view.dtype(), [&](auto gradient) {
      using Out = decltype(gradient);
      cuda::dispatch_form(k.form, [&](auto form) {
        const cuda::BackwardEach<decltype(form), T, Out> each{cuda::Sink<Out>(k.dx), k.dy.as<T>(),
                                                              k.x.as<T>()};
        cuda::map(stream, k.x.numel(), each, k.dx.view, k.dy, k.x);
      });
    });
  });
}

}  // namespace spool
