#include "spool/kernels/dropout.h"

#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/cuda/philox.cuh"

namespace spool {
namespace cuda {
namespace {

template <class T, class Out>
struct DropEach {
  Sink<Out> y;
  const T* x;
  const uint32_t* random;
  uint32_t node;
  int64_t first;
  float p, factor;

  // at[0 .. n) are the random words of elements i, i + 1, ... of x.
  template <int n>
  struct Words {
    static constexpr int blocks = n / 4 + 1, count = 4 * blocks;
    uint32_t at[count];

    __device__ __forceinline__ Words(const DropEach& each, int64_t i) {
      const auto element = static_cast<uint64_t>(each.first + i);
      const auto skip = static_cast<uint32_t>(element) % 4;
      const uint2 key = make_uint2(__ldg(each.random), __ldg(each.random + 1));
      const uint32_t step = __ldg(each.random + 2), micro_batch = __ldg(each.random + 3);
#pragma unroll
      for (uint32_t b = 0; b < blocks; ++b) {
        uint4 words = make_uint4(0, 0, 0, 0);
        if (4 * b < skip + n) {
          const auto block = static_cast<uint32_t>(element / 4) + b;
          words = philox(key, make_uint4(block, each.node, step, micro_batch));
        }
        at[4 * b] = words.x;
        at[4 * b + 1] = words.y;
        at[4 * b + 2] = words.z;
        at[4 * b + 3] = words.w;
      }
      if (skip & 1) shift<1>();
      if (skip & 2) shift<2>();
    }
    // Shifts by a constant, so that the words stay in registers.
    template <int by>
    __device__ __forceinline__ void shift() {
#pragma unroll
      for (int j = 0; j + by < count; ++j) at[j] = at[j + by];
    }
  };

  template <int n>
  __device__ void apply(int64_t i) const {
    const Raw<n, T> raw = load_raw<n>(x + i);
    const Raw<n, Out> before = y.template before<n>(i);
    const Words<n> words(*this, i);
    Floats<n> out = floats_of(raw);
#pragma unroll
    for (int k = 0; k < n; ++k) out.at[k] = uniform(words.at[k]) >= p ? out.at[k] * factor : 0.0f;
    y.put(i, out, before);
  }
};

}  // namespace
}  // namespace cuda

void run(const Dropout& k, CudaStream& stream) {
  check(k.p >= 0 && k.p < 1, "dropout: p = ", k.p, " is not in [0, 1)");
  cuda::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cuda::dispatch_gradient<T>(k.y.view.dtype(), [&](auto gradient) {
      using Out = decltype(gradient);
      const cuda::DropEach<T, Out> each{.y = cuda::Sink<Out>(k.y),
                                        .x = k.x.as<T>(),
                                        .random = k.random.as<uint32_t>(),
                                        .node = k.node,
                                        .first = k.first,
                                        .p = k.p,
                                        .factor = 1 / (1 - k.p)};
      cuda::map(stream, k.x.numel(), each, k.y.view, k.x);
    });
  });
}

}  // namespace spool
