#include "spool/kernels/swiglu.h"

#include "spool/kernels/cuda/map_source.cuh"
#include "spool/kernels/functions.h"

namespace spool {
namespace cuda {
namespace {

// Where the gate of element i of y lies in x; u is I elements further.
__device__ __forceinline__ int64_t gate_of(int64_t i, int64_t I) {
  const Place place(i, I);
  return 2 * place.row * I + place.column;
}

template <class T>
struct SwigluEach {
  T* y;
  const T* x;
  int64_t I;
  template <int n>
  __device__ void apply(int64_t i) const {
    const int64_t gate = gate_of(i, I);
    const Raw<n, T> gates = load_raw<n>(x + gate), others = load_raw<n>(x + gate + I);
    Floats<n> out = floats_of(others);
    const Floats<n> g = floats_of(gates);
#pragma unroll
    for (int k = 0; k < n; ++k) out.at[k] *= g.at[k] * math::sigmoid(g.at[k]);
    store<n>(y + i, out);
  }
};

template <class T, class Out>
struct SwigluBackwardEach {
  Sink<Out> dx;
  const T *dy, *x;
  int64_t I;
  template <int n>
  __device__ void apply(int64_t i) const {
    const int64_t gate = gate_of(i, I), other = gate + I;
    const Raw<n, T> gates = load_raw<n>(x + gate), others = load_raw<n>(x + other);
    const Raw<n, T> after = load_raw<n>(dy + i);
    const Raw<n, Out> before = dx.template before<n>(gate);
    const Raw<n, Out> before_other = dx.template before<n>(other);
    const Floats<n> g = floats_of(gates), u = floats_of(others), up = floats_of(after);
    Floats<n> dg, du;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const float s = math::sigmoid(g.at[k]), scaled = up.at[k] * s;
      dg.at[k] = scaled * u.at[k] * (1 + g.at[k] * (1 - s));
      du.at[k] = scaled * g.at[k];
    }
    dx.put(gate, dg, before);
    dx.put(other, du, before_other);
  }
};

}  // namespace
}  // namespace cuda

void run(const SwigluForward& k, CudaStream& stream) {
  const int64_t I = k.y.shape().row();
  cuda::dispatch(k.y.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const cuda::SwigluEach<T> each{k.y.as<T>(), k.x.as<T>(), I};
    cuda::map(stream, k.y.numel(), each, /*wide=*/I % cuda::map_width == 0, k.y, k.x);
  });
}

void run(const SwigluBackward& k, CudaStream& stream) {
  const int64_t I = k.dy.shape().row();
  cuda::dispatch(k.dy.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cuda::dispatch_gradient<T>(k.dx.view.dtype(), [&](auto gradient) {
      using Out = decltype(gradient);
      const cuda::SwigluBackwardEach<T, Out> each{cuda::Sink<Out>(k.dx), k.dy.as<T>(), k.x.as<T>(),
                                                  I};
      cuda::map(stream, k.dy.numel(), each, /*wide=*/I % cuda::map_width == 0, k.dx.view, k.dy,
                k.x);
    });
  });
}

}  // namespace spool
