#include "spool/kernels/gelu.h"

#include <numbers>

#include "spool/kernels/cuda/column_sums.cuh"
#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/functions.h"

namespace spool {
namespace cuda {
namespace {

// y = x cdf(x) and y' = cdf(x) + x density(x), as in kernels/cpu/gelu.cpp.  The fast exponential
// keeps the kernels bound by memory.

struct Tanh {
  static constexpr float twice_root = 1.5957691216057307f;  // 2 sqrt(2/pi)
  static constexpr float cubic = 0.044715f;

  static __device__ __forceinline__ float cdf(float x) {
    const float square = x * x;
    return math::fast_reciprocal(1 +
                                 math::fast_exp(x * (-twice_root - twice_root * cubic * square)));
  }
  static __device__ __forceinline__ float density(float x, float cdf) {
    const float square = x * x;
    return (cdf - cdf * cdf) * (twice_root + 3 * cubic * twice_root * square);
  }
};

struct Exact {
  static constexpr float root_half = static_cast<float>(std::numbers::sqrt2 / 2);
  static constexpr float peak = static_cast<float>(std::numbers::inv_sqrtpi) * root_half;

  static __device__ __forceinline__ float cdf(float x) { return 0.5f * erfcf(-root_half * x); }
  static __device__ __forceinline__ float density(float x, float) {
    return peak * math::fast_exp(-0.5f * x * x);
  }
};

template <class Form>
__device__ __forceinline__ float slope(float x) {
  const float cdf = Form::cdf(x);
  return cdf + x * Form::density(x, cdf);
}

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
    const Raw<n, T> from = load_raw<n>(x + i), after = load_raw<n>(dy + i);
    const Raw<n, Out> before = dx.template before<n>(i);
    const Floats<n> at = floats_of(from);
    Floats<n> out = floats_of(after);
#pragma unroll
    for (int k = 0; k < n; ++k) out.at[k] *= slope<Form>(at.at[k]);
    dx.put(i, out, before);
  }
};

// With a bias, a block has a tile of columns and a group of rows, which its warps take in turn; a
// thread keeps the bias of its columns.
constexpr int warps = sum_warps, rows_at_once = 4, rows_of_forward = 2 * warps * rows_at_once;

struct Rows {
  int64_t N, C, rows;  // rows of a group
  unsigned tiles;      // of columns

  template <int width>
  __device__ __forceinline__ int64_t column() const {
    return (int64_t{blockIdx.x % tiles} * warp_lanes + lane_of_warp()) * width;
  }
  __device__ __forceinline__ int64_t group() const { return blockIdx.x / tiles; }
  // Calls f.rows(i, left) for the rows of this thread, every warps-th, rows_at_once at a time, so
  // that as many loads are in flight.  i is the index of the first one's elements, and the group
  // has `left` rows from it on.
  template <class F>
  __device__ __forceinline__ void for_each(F& f) const {
    const int64_t after = (group() + 1) * rows, end = after < N ? after : N;
    int64_t n = group() * rows + static_cast<int>(threadIdx.x) / warp_lanes;
    for (; n < end; n += rows_at_once * warps) f.rows(n * C, end - n);
  }
};

template <class Form, class T, int width>
struct BiasedForward {
  T* y;
  const T* x;
  int64_t step;  // from row to row
  Floats<width> bias = {};

  __device__ __forceinline__ void rows(int64_t i, int64_t left) const {
    Raw<width, T> raw[rows_at_once];
    const T* from = x + i;
#pragma unroll
    for (int r = 0; r < rows_at_once; ++r, from += step) {
      raw[r] = load_raw<width>(from, r * warps < left);
    }
    T* to = y + i;
#pragma unroll
    for (int r = 0; r < rows_at_once; ++r, to += step) {
      Floats<width> at = floats_of(raw[r]);
#pragma unroll
      for (int k = 0; k < width; ++k) {
        at.at[k] += bias.at[k];
        at.at[k] *= Form::cdf(at.at[k]);
      }
      if (r * warps < left) store<width>(to, at);
    }
  }
};

template <class Form, class T, int width>
__global__ void __launch_bounds__(warps* warp_lanes)
    biased_forward(T* y, const T* x, const T* bias, Rows all) {
  const int64_t c = all.template column<width>();
  if (c >= all.C) return;
  BiasedForward<Form, T, width> columns{y + c, x + c, warps * all.C};
  columns.bias = floats_of(load_raw<width>(bias + c));
  all.for_each(columns);
}

template <class Form, class T, class Out, int width>
struct BiasedBackward {
  Sink<Out> dx;  // to nowhere if absent
  const T *dy, *x;
  int64_t step;
  Floats<width> bias = {}, sum = {};

  __device__ __forceinline__ void rows(int64_t i, int64_t left) {
    Raw<width, T> from[rows_at_once], out[rows_at_once];
    Raw<width, Out> before[rows_at_once] = {};
#pragma unroll
    for (int r = 0; r < rows_at_once; ++r) {
      from[r] = load_raw<width>(x + i + r * step, r * warps < left);
      out[r] = load_raw<width>(dy + i + r * step, r * warps < left);
    }
    if (dx.accumulate) {
#pragma unroll
      for (int r = 0; r < rows_at_once; ++r) {
        before[r] = dx.template before<width>(i + r * step, r * warps < left);
      }
    }
#pragma unroll
    for (int r = 0; r < rows_at_once; ++r) {
      const Floats<width> at = floats_of(from[r]);
      Floats<width> gradient = floats_of(out[r]);
#pragma unroll
      for (int k = 0; k < width; ++k) {
        gradient.at[k] *= slope<Form>(at.at[k] + bias.at[k]);
        sum.at[k] += gradient.at[k];
      }
      if (dx.data && r * warps < left) dx.put(i + r * step, gradient, before[r]);
    }
  }
};

// partials[g, c], if wanted, is the sum of the gradient over the rows of group g.
template <class Form, class T, class Out, int width>
__global__ void __launch_bounds__(warps* warp_lanes)
    biased_backward(Sink<Out> dx, const T* dy, const T* x, const T* bias, float* partials,
                    Rows all) {
  const int64_t c = all.template column<width>();
  BiasedBackward<Form, T, Out, width> columns{dx, dy + c, x + c, warps * all.C};
  if (c < all.C) {
    columns.dx.data = dx.data ? dx.data + c : nullptr;
    columns.bias = floats_of(load_raw<width>(bias + c));
    all.for_each(columns);
  }
  if (!partials) return;
  put_partials<width>(columns.sum, blockIdx.x % all.tiles, all.C, partials + all.group() * all.C);
}

template <class F>
void dispatch_form(GeluForm form, F&& f) {
  if (form == GeluForm::exact) return f(Exact{});
  f(Tanh{});
}

template <class T, class F>
void launch_columns(int64_t N, int64_t C, int64_t rows, bool wide, const F& launch) {
  if (N == 0 || C == 0) return;
  const auto launch_width = [&](auto width) {
    const int64_t tiles = ceil_div<int64_t>(C, warp_lanes * decltype(width)::value);
    const LaunchShape shape{.grid = dim3(unsigned(tiles * ceil_div(N, rows))),
                            .block = dim3(warps * warp_lanes)};
    launch(width, shape, Rows{.N = N, .C = C, .rows = rows, .tiles = static_cast<unsigned>(tiles)});
  };
  if (wide) return launch_width(std::integral_constant<int, Pack<T>::size>{});
  launch_width(std::integral_constant<int, 1>{});
}

template <class Form, class T>
void forward_with_bias(const GeluForward& k, CudaStream& stream) {
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  const bool wide = packs<T>(k.x.data(), C) && packs<T>(k.y.data(), C) && is_aligned(k.bias);
  launch_columns<T>(N, C, rows_of_forward, wide,
                    [&](auto width, const LaunchShape& shape, const Rows& all) {
                      launch_kernel(stream, biased_forward<Form, T, decltype(width)::value>, shape,
                                    k.y.as<T>(), k.x.as<T>(), k.bias.as<T>(), all);
                    });
}

template <class Form, class T, class Out>
void backward_with_bias(const GeluBackward& k, CudaStream& stream) {
  const int64_t N = k.x.shape().rows(), C = k.x.shape().row();
  const bool wide = packs<T>(k.x.data(), C) && packs<T>(k.dy.data(), C) &&
                    packs<Out>(k.dx.view.data(), C) && is_aligned(k.bias);
  const RowGroups groups(N, C);
  const Sink<Out> dx = k.dx ? Sink<Out>(k.dx) : Sink<Out>();
  float* const partials = k.dbias ? k.workspace.as<float>() : nullptr;
  launch_columns<T>(
      N, C, groups.rows, wide, [&](auto width, const LaunchShape& shape, const Rows& all) {
        launch_kernel(stream, biased_backward<Form, T, Out, decltype(width)::value>, shape, dx,
                      k.dy.as<T>(), k.x.as<T>(), k.bias.as<T>(), partials, all);
      });
  if (k.dbias && C > 0) add_up<T>(stream, {k.dbias}, partials, C, groups.count);
}

template <class Form, class T>
void forward(const GeluForward& k, CudaStream& stream) {
  if (k.bias) return forward_with_bias<Form, T>(k, stream);
  const ForwardEach<Form, T> each{k.y.as<T>(), k.x.as<T>()};
  map(stream, k.x.numel(), each, k.y, k.x);
}

template <class Form, class T, class Out>
void backward(const GeluBackward& k, CudaStream& stream) {
  if (k.bias) return backward_with_bias<Form, T, Out>(k, stream);
  const BackwardEach<Form, T, Out> each{Sink<Out>(k.dx), k.dy.as<T>(), k.x.as<T>()};
  map(stream, k.x.numel(), each, k.dx.view, k.dy, k.x);
}

}  // namespace
}  // namespace cuda

void run(const GeluForward& k, CudaStream& stream) {
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cuda::dispatch_form(k.form, [&](auto form) { cuda::forward<decltype(form), T>(k, stream); });
  });
}

void run(const GeluBackward& k, CudaStream& stream) {
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const DType gradient_type = k.dx ? k.dx.view.dtype() : k.x.dtype();
    cuda::dispatch_gradient<T>(gradient_type, [&](auto gradient) {
      using Out = decltype(gradient);
      cuda::dispatch_form(k.form,
                          [&](auto form) { cuda::backward<decltype(form), T, Out>(k, stream); });
    });
  });
}

}  // namespace spool
