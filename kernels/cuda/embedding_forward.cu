#include "spool/kernels/cuda/embedding.cuh"
#include "spool/kernels/embedding.h"

namespace spool {
namespace cuda {
namespace {

template <class T>
struct EmbedArguments {
  T* y;
  const int32_t* tokens;
  const T *weight, *positions;
  int64_t N, sequence, V, C;
  uint32_t first;  // token of row 0 of the weight
  int64_t whole;   // number of tokens
};

// A warp computes a row.  The host does not read the tokens: one outside the vocabulary gives NaN,
// one of another part of it zeros.
template <int width, class T>
__global__ void __launch_bounds__(row_warps* warp_lanes) embed(EmbedArguments<T> k) {
  const int64_t n = warp_of_grid();
  if (n >= k.N) return;
  const int32_t token = __ldg(k.tokens + n);
  const bool known = token >= 0 && token < k.whole;
  const uint32_t v = static_cast<uint32_t>(token) - k.first;
  const bool here = v < k.V;
  const T* weight = k.weight + (here ? v : 0) * k.C;
  const T* position = k.positions ? k.positions + n % k.sequence * k.C : nullptr;
  constexpr int at_once = 4, step = warp_lanes * width;
  for (int64_t first = lane_of_warp() * width; first < k.C; first += at_once * step) {
    Raw<width, T> of_token[at_once], of_position[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int64_t c = first + j * step;
      of_token[j] = load_cached<width>(weight + c, here && c < k.C);
      of_position[j] = load_cached<width>(position ? position + c : weight, position && c < k.C);
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int64_t c = first + j * step;
      if (c >= k.C) break;
      Floats<width> y = floats_of(of_token[j]);
      if (position) add_to(y, of_position[j]);
      if (!known) y = repeated<width>(NAN);
      store<width>(k.y + n * k.C + c, y);
    }
  }
}

}  // namespace
}  // namespace cuda

void run(const EmbeddingForward& k, CudaStream& stream) {
  const int64_t N = k.tokens.numel(), C = k.y.shape().row();
  if (k.y.numel() == 0) return;
  cuda::dispatch(k.y.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const T* positions = k.positions ? k.positions.as<T>() + k.first_position * C : nullptr;
    const cuda::EmbedArguments<T> all{.y = k.y.as<T>(),
                                      .tokens = k.tokens.as<int32_t>(),
                                      .weight = k.weight.as<T>(),
                                      .positions = positions,
                                      .N = N,
                                      .sequence = k.tokens.shape().row(),
                                      .V = k.weight.shape().rows(),
                                      .C = C,
                                      .first = static_cast<uint32_t>(k.part.first),
                                      .whole = k.part.whole_of(k.weight.shape().rows())};
    const bool wide =
        cuda::packs<T>(all.y, C) && cuda::packs<T>(all.weight, C) && cuda::packs<T>(positions, C);
    cuda::launch_kernel(stream, wide ? cuda::embed<cuda::Pack<T>::size, T> : cuda::embed<1, T>,
                        cuda::warp_a_row(N, 1), all);
  });
}

}  // namespace spool
