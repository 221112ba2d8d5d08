#include "spool/kernels/rope.h"

#include "spool/kernels/cuda/map_source.cuh"

namespace spool {
namespace cuda {
namespace {

// n numbers of the table, which many tokens and heads read.
template <int n>
__device__ __forceinline__ Floats<n> load_angles(const float* from, bool in_range) {
  Floats<n> all = {};
  if constexpr (n == 1) {
    if (in_range) all.at[0] = __ldg(from);
  } else {
#pragma unroll
    for (int p = 0; p < n; p += 4) {
      const Pack<float> pack = pack_of<float>(load_bits(from + p, in_range));
#pragma unroll
      for (int k = 0; k < 4; ++k) all.at[p + k] = pack.at[k];
    }
  }
  return all;
}

// An element is a pair of one head; a head's pairs are consecutive.  Pairs of values are copied.
template <class T, class Out>
struct RopeEach {
  Sink<Out> y;
  const T* x;
  const float* table;
  const int32_t* positions;  // null: consecutive from `first` on in each text
  int64_t first, T_each, rows, packed, turned, half;
  float sign;

  __device__ __forceinline__ int64_t position_of(int64_t token) const {
    if (positions) return __ldg(positions + token);
    return first + Place(token, T_each).column;
  }

  template <int n>
  __device__ void apply(int64_t i) const {
    const Place pair(i, half), head(pair.row, packed);
    const int64_t a = 2 * half * pair.row + pair.column, b = a + half;
    const Raw<n, T> low = load_raw<n>(x + a), high = load_raw<n>(x + b);
    const Raw<n, Out> before_low = y.template before<n>(a), before_high = y.template before<n>(b);
    Floats<n> p = floats_of(low), q = floats_of(high);
    if (head.column < turned) turn(head.row, pair.column, p, q);
    y.put(a, p, before_low);
    y.put(b, q, before_high);
  }
  template <int n>
  __device__ __forceinline__ void turn(int64_t token, int64_t d, Floats<n>& p, Floats<n>& q) const {
    const int64_t position = position_of(token);
    const bool known = position >= 0 && position < rows;
    const float* const angles = table + (known ? 2 * half * position : 0) + d;
    Floats<n> c = load_angles<n>(angles, known), s = load_angles<n>(angles + half, known);
    if (!known) c = repeated<n>(NAN);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const float sine = sign * s.at[k], first_of_pair = p.at[k];
      p.at[k] = first_of_pair * c.at[k] - q.at[k] * sine;
      q.at[k] = q.at[k] * c.at[k] + first_of_pair * sine;
    }
  }
};

template <class T, class Out>
void rope(const Rope& k, CudaStream& stream) {
  const int64_t half = k.head_size() / 2;
  const RopeEach<T, Out> each{.y = Sink<Out>(k.y),
                              .x = k.x.as<T>(),
                              .table = k.table.as<float>(),
                              .positions = k.positions ? k.positions.as<int32_t>() : nullptr,
                              .first = k.first_position,
                              .T_each = k.x.shape()[-2],
                              .rows = k.table.shape().rows(),
                              .packed = k.heads.query + 2 * k.heads.key,
                              .turned = k.heads.query + k.heads.key,
                              .half = half,
                              .sign = k.back ? -1.0f : 1.0f};
  map(stream, k.x.numel() / 2, each, /*wide=*/half % map_width == 0, k.y.view, k.x, k.table);
}

}  // namespace
}  // namespace cuda

void run(const Rope& k, CudaStream& stream) {
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cuda::dispatch_gradient<T>(
        k.y.view.dtype(), [&](auto gradient) { cuda::rope<T, decltype(gradient)>(k, stream); });
  });
}

}  // namespace spool
