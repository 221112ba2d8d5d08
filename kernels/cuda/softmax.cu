// The first pass over a row finds the largest element and the sum under a running maximum; the
// second, which finds the row in the cache, writes.

#include "spool/kernels/softmax.h"

#include <limits>

#include "spool/kernels/cuda/team.cuh"
#include "spool/kernels/functions.h"

namespace spool {
namespace cuda {
namespace {

constexpr float lowest = std::numeric_limits<float>::lowest();

template <class T>
struct Forward {
  T* y;
  const T* x;
  Team team;
};

template <class T, int n>
__global__ void __launch_bounds__(team_block) softmax_forward(Forward<T> k) {
  SPOOL_SHARED_2D(float, scratch, 2, warp_lanes);
  const int64_t row = k.team.row();
  if (row >= k.team.N) return;
  const T* x = k.x + row * k.team.C;
  T* y = k.y + row * k.team.C;
  float largest = lowest, sum = 0;
  const auto load_x = [&](int64_t c, bool in_range) { return load_raw<n>(x + c, in_range); };
  k.team.template for_each<n>(load_x, [&](int64_t, const Raw<n, T>& raw) {
    const Floats<n> all = floats_of(raw);
    float next = largest;
#pragma unroll
    for (int i = 0; i < n; ++i) next = fmaxf(next, all.at[i]);
    sum *= math::fast_exp(largest - next);
    largest = next;
#pragma unroll
    for (int i = 0; i < n; ++i) sum += math::fast_exp(all.at[i] - next);
  });
  const float top = k.team.max(largest, scratch[0]);
  const float inverse = 1 / k.team.sum(sum * math::fast_exp(largest - top), scratch[1]);
  k.team.template for_each<n>(load_x, [&](int64_t c, const Raw<n, T>& raw) {
    Floats<n> all = floats_of(raw);
#pragma unroll
    for (int i = 0; i < n; ++i) all.at[i] = math::fast_exp(all.at[i] - top) * inverse;
    store<n>(y + c, all);
  });
}

template <class T, class Out>
struct Backward {
  Sink<Out> dx;
  const T *dy, *y;
  Team team;
};

template <class T, class Out, int n>
struct LoadedBackward {
  Both<n, T> both;
  Raw<n, Out> before;
};

template <class T, class Out, int n>
__global__ void __launch_bounds__(team_block) softmax_backward(Backward<T, Out> k) {
  SPOOL_SHARED(float, scratch, warp_lanes);
  const int64_t row = k.team.row(), first = row * k.team.C;
  if (row >= k.team.N) return;
  float mine = 0;
  const auto load_both = [&](int64_t c, bool in_range) {
    return Both<n, T>{load_raw<n>(k.dy + first + c, in_range),
                      load_raw<n>(k.y + first + c, in_range)};
  };
  k.team.template for_each<n>(load_both, [&](int64_t, const Both<n, T>& raw) {
    const Floats<n> dy = floats_of(raw.a), y = floats_of(raw.b);
#pragma unroll
    for (int i = 0; i < n; ++i) mine += dy.at[i] * y.at[i];
  });
  const float mean = k.team.sum(mine, scratch);
  const auto load_all = [&](int64_t c, bool in_range) {
    return LoadedBackward<T, Out, n>{load_both(c, in_range),
                                     k.dx.template before<n>(first + c, in_range)};
  };
  k.team.template for_each<n>(load_all, [&](int64_t c, const LoadedBackward<T, Out, n>& raw) {
    Floats<n> dy = floats_of(raw.both.a);
    const Floats<n> y = floats_of(raw.both.b);
#pragma unroll
    for (int i = 0; i < n; ++i) dy.at[i] = y.at[i] * (dy.at[i] - mean);
    k.dx.put(first + c, dy, raw.before);
  });
}

}  // namespace
}  // namespace cuda

void run(const SoftmaxForward& k, CudaStream& stream) {
  const cuda::Team team(k.x.shape().rows(), k.x.shape().row());
  if (team.N == 0) return;
  cuda::dispatch(k.x.dtype(), [&](auto x) {
    using T = decltype(x);
    const cuda::Forward<T> all{k.y.as<T>(), k.x.as<T>(), team};
    const auto kernel = cuda::rows_are_wide(team.C, k.x, k.y)
                            ? cuda::softmax_forward<T, cuda::map_width>
                            : cuda::softmax_forward<T, 1>;
    cuda::launch_kernel(stream, kernel,
                        {.grid = dim3(team.blocks()), .block = dim3(cuda::team_block)}, all);
  });
}

void run(const SoftmaxBackward& k, CudaStream& stream) {
  const cuda::Team team(k.y.shape().rows(), k.y.shape().row());
  if (team.N == 0) return;
  cuda::dispatch(k.y.dtype(), [&](auto y) {
    using T = decltype(y);
    cuda::dispatch_gradient<T>(k.dx.view.dtype(), [&](auto x) {
      using Out = decltype(x);
      const cuda::Backward<T, Out> all{cuda::Sink<Out>(k.dx), k.dy.as<T>(), k.y.as<T>(), team};
      const auto kernel = cuda::rows_are_wide(team.C, k.dx.view, k.dy, k.y)
                              ? cuda::softmax_backward<T, Out, cuda::map_width>
                              : cuda::softmax_backward<T, Out, 1>;
      cuda::launch_kernel(stream, kernel,
                          {.grid = dim3(team.blocks()), .block = dim3(cuda::team_block)}, all);
    });
  });
}

}  // namespace spool
