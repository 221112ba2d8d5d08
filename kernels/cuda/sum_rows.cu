#include "spool/kernels/sum_rows.h"

#include "spool/kernels/cuda/team.cuh"

namespace spool {
namespace cuda {
namespace {

template <class T, class Out>
struct RowSums {
  Sink<Out> y;
  const T* x;
  Team team;
  float factor;
};

template <class T, class Out, int n>
__global__ void __launch_bounds__(team_block) sum_rows(RowSums<T, Out> k) {
  SPOOL_SHARED(float, scratch, warp_lanes);
  const int64_t row = k.team.row();
  if (row >= k.team.N) return;
  const T* x = k.x + row * k.team.C;
  float mine = 0;
  const auto load_x = [&](int64_t c, bool in_range) { return load_raw<n>(x + c, in_range); };
  k.team.template for_each<n>(load_x, [&](int64_t, const Raw<n, T>& raw) {
    const Floats<n> all = floats_of(raw);
#pragma unroll
    for (int i = 0; i < n; ++i) mine += all.at[i];
  });
  Floats<1> sum;
  sum.at[0] = k.factor * k.team.sum(mine, scratch);
  if (k.team.member() == 0) k.y.template put<1>(row, sum);
}

// One number, f32 or bf16.
struct Number {
  const void* data;
  bool is_f32;
  __device__ __forceinline__ float at(int64_t i) const {
    return is_f32 ? static_cast<const float*>(data)[i]
                  : to_float(static_cast<const __nv_bfloat16*>(data)[i]);
  }
};

template <class Out>
struct SpreadEach {
  Sink<Out> dx;
  Number dy;
  int64_t each;
  float factor;
  bool together;  // groups of map_width elements have one number of dy
  template <int n>
  __device__ void apply(int64_t i) const {
    Floats<n> x;
    const float first = dy.at(i / each);
#pragma unroll
    for (int k = 0; k < n; ++k) x.at[k] = factor * (together ? first : dy.at((i + k) / each));
    dx.template put<n>(i, x);
  }
};

}  // namespace
}  // namespace cuda

void run(const SumRows& k, CudaStream& stream) {
  const cuda::Team team(k.y.view.numel(), k.C);
  if (team.N == 0) return;
  cuda::dispatch(k.x.dtype(), [&](auto x) {
    using T = decltype(x);
    cuda::dispatch_gradient<T>(k.y.view.dtype(), [&](auto y) {
      using Out = decltype(y);
      const cuda::RowSums<T, Out> all{cuda::Sink<Out>(k.y), k.x.as<T>(), team,
                                      static_cast<float>(k.factor)};
      const auto kernel = cuda::rows_are_wide(k.C, k.x) ? cuda::sum_rows<T, Out, cuda::map_width>
                                                        : cuda::sum_rows<T, Out, 1>;
      cuda::launch_kernel(stream, kernel,
                          {.grid = dim3(team.blocks()), .block = dim3(cuda::team_block)}, all);
    });
  });
}

void run(const Spread& k, CudaStream& stream) {
  const int64_t elements = k.dx.view.numel();
  if (elements == 0) return;
  const int64_t each = elements / k.dy.numel();
  check(k.dy.dtype() != DType::f64, "spread on cuda: dy must be f32 or bf16, not f64");
  const cuda::Number dy{k.dy.data(), k.dy.dtype() == DType::f32};
  cuda::dispatch(k.dx.view.dtype(), [&](auto x) {
    using Out = decltype(x);
    const bool together = each % cuda::map_width == 0 || each == elements;
    const cuda::SpreadEach<Out> spread{cuda::Sink<Out>(k.dx), dy, each,
                                       static_cast<float>(k.factor), together};
    cuda::map(stream, elements, spread, k.dx.view);
  });
}

}  // namespace spool
