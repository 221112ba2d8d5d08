#include "spool/kernels/squared_error.h"

#include "spool/kernels/cuda/team.cuh"

namespace spool {
namespace cuda {
namespace {

template <class T>
struct Losses {
  float* losses;
  const T *x, *y;
  Team team;
};

template <class T, int n>
__global__ void __launch_bounds__(team_block) squared_error(Losses<T> k) {
  SPOOL_SHARED(float, scratch, warp_lanes);
  const int64_t row = k.team.row(), first = row * k.team.C;
  if (row >= k.team.N) return;
  float mine = 0;
  const auto load_both = [&](int64_t c, bool in_range) {
    return Both<n, T>{load_raw<n>(k.x + first + c, in_range),
                      load_raw<n>(k.y + first + c, in_range)};
  };
  k.team.template for_each<n>(load_both, [&](int64_t, const Both<n, T>& raw) {
    const Floats<n> x = floats_of(raw.a), y = floats_of(raw.b);
#pragma unroll
    for (int i = 0; i < n; ++i) mine += (x.at[i] - y.at[i]) * (x.at[i] - y.at[i]);
  });
  const float sum = k.team.sum(mine, scratch);
  if (k.team.member() == 0) k.losses[row] = sum / static_cast<float>(k.team.C);
}

// The gradient of x, or of y if these are exchanged.
template <class T, class Out>
struct DifferenceEach {
  Sink<Out> out;
  const T *x, *y;
  const float *upstream, *scale;
  int64_t row;    // elements for each number of upstream
  float factor;   // 2/C times the loss's
  bool together;  // groups of map_width elements have one number of upstream
  template <int n>
  __device__ void apply(int64_t i) const {
    const Raw<n, T> raw_x = load_raw<n>(x + i), raw_y = load_raw<n>(y + i);
    const Raw<n, Out> before = out.template before<n>(i);
    Floats<n> difference = floats_of(raw_x);
    const Floats<n> from = floats_of(raw_y);
    const float all = scale ? factor * *scale : factor, first = upstream[i / row];
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const float g = all * (together ? first : upstream[(i + k) / row]);
      difference.at[k] = g * (difference.at[k] - from.at[k]);
    }
    out.put(i, difference, before);
  }
};

template <class T>
void differentiate(CudaStream& stream, const SquaredErrorBackward& k, const Grad& gradient,
                   const View& from, const View& to) {
  if (!gradient) return;
  const int64_t C = k.x.shape().row(), elements = k.x.numel();
  const bool one = k.upstream.numel() == 1;
  dispatch_gradient<T>(gradient.view.dtype(), [&](auto x) {
    using Out = decltype(x);
    const DifferenceEach<T, Out> each{
        .out = Sink<Out>(gradient),
        .x = from.as<T>(),
        .y = to.as<T>(),
        .upstream = k.upstream.as<float>(),
        .scale = k.scale.as<float>(),
        .row = one ? elements : C,
        .factor = static_cast<float>(2 * k.factor) / static_cast<float>(C),
        .together = one || C % map_width == 0};
    map(stream, elements, each, gradient.view, from, to);
  });
}

}  // namespace
}  // namespace cuda

void run(const SquaredErrorForward& k, CudaStream& stream) {
  const cuda::Team team(k.x.shape().rows(), k.x.shape().row());
  if (team.N == 0) return;
  cuda::dispatch(k.x.dtype(), [&](auto x) {
    using T = decltype(x);
    const cuda::Losses<T> all{k.losses.as<float>(), k.x.as<T>(), k.y.as<T>(), team};
    const auto kernel = cuda::rows_are_wide(team.C, k.x, k.y)
                            ? cuda::squared_error<T, cuda::map_width>
                            : cuda::squared_error<T, 1>;
    cuda::launch_kernel(stream, kernel,
                        {.grid = dim3(team.blocks()), .block = dim3(cuda::team_block)}, all);
  });
}

void run(const SquaredErrorBackward& k, CudaStream& stream) {
  if (k.x.numel() == 0) return;
  cuda::dispatch(k.x.dtype(), [&](auto x) {
    using T = decltype(x);
    cuda::differentiate<T>(stream, k, k.dx, k.x, k.y);
    cuda::differentiate<T>(stream, k, k.dy, k.y, k.x);
  });
}

}  // namespace spool
