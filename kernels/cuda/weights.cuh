#pragma once

// The updates of kernels/weights.h.  A Rule has the arguments of a kernel besides its tensors, and
//   rows, capacity      the rows of an entry's state, maybe 0; the capacity of the kernel's list
//   Step(rule, clip factor, rate, decay)
//                       the values for all elements of a tensor, read from device memory, with
//     take(grad, w, state, k)   which updates w and the k-th of each row of the state

#include "spool/kernels/cuda/philox.cuh"
#include "spool/kernels/cuda/table.cuh"
#include "spool/kernels/weights.h"

namespace spool::cuda::weights {

// A thread updates `width` elements and the `width` elements half a piece further on.  So
// neighbours in a warp access neighbours in memory, whatever the types, and one draw serves both.
constexpr int width = 4, threads = 256, half = threads * width, piece = 2 * half;
static_assert(piece == weights_granule);

constexpr int at_least_one(int rows) { return rows > 0 ? rows : 1; }

template <int rows>
struct Entry {
  void *parameter = nullptr, *grad = nullptr;
  float* master = nullptr;
  float* state[at_least_one(rows)] = {};
  int64_t count = 0;
  unsigned first = 0, index = 0;
  uint32_t first_draw = 0;  // counter of the slice's first draw
  float decay = 0;
  bool grad_is_f32 = false, aligned = false;
  float rate = 1;
};

template <class Rule>
struct Arguments {
  Table<Entry<Rule::rows>, Rule::capacity> tensors;
  const float* clip;
  const uint32_t* random;
  Rule rule;
};

struct Quad {
  float at[width];
};

template <class T>
struct alignas(sizeof(T) * width) Packed {
  T at[width];
};

// The bits of `width` T, moved as one access.
template <class T>
using bits_t = std::conditional_t<sizeof(T) == 4, uint4, uint2>;

template <class T>
__device__ __forceinline__ Quad quad_of(const bits_t<T>& bits) {
  Packed<T> packed;
  memcpy(&packed, &bits, sizeof bits);
  Quad x;
#pragma unroll
  for (int k = 0; k < width; ++k) x.at[k] = to_float(packed.at[k]);
  return x;
}
// The first n elements, then zeros.
template <class T>
__device__ __forceinline__ Quad load_cut(const T* from, int n) {
  Quad x = {};
#pragma unroll
  for (int k = 0; k < width; ++k) {
    if (k < n) x.at[k] = to_float(from[k]);
  }
  return x;
}

template <class T>
__device__ __forceinline__ void store_quad(T* to, const Packed<T>& packed, int n, bool whole) {
  if (whole) {
    bits_t<T> bits;
    memcpy(&bits, &packed, sizeof bits);
    __stcs(reinterpret_cast<bits_t<T>*>(to), bits);
  } else {
#pragma unroll
    for (int k = 0; k < width; ++k) {
      if (k < n) to[k] = packed.at[k];
    }
  }
}

template <class T>
__device__ __forceinline__ void store_quad(T* to, const Quad& x, int n, bool whole) {
  Packed<T> packed;
#pragma unroll
  for (int k = 0; k < width; ++k) packed.at[k] = from_float<T>(x.at[k]);
  store_quad(to, packed, n, whole);
}

// Random bits.
struct Words {
  uint32_t at[4];
};

// Rounds stochastically, as kernels/weights.h says.
__device__ __forceinline__ __nv_bfloat16 round_by(float x, uint32_t r) {
  constexpr uint32_t infinity = 0x7f800000, quiet = 0x400000;
  const uint32_t u = __float_as_uint(x);
  const bool overflows = ((u + r) & infinity) == infinity;  // or x is not finite
  const uint32_t rounded = x != x ? u | quiet : overflows ? u : u + r;
  return __ushort_as_bfloat16(static_cast<unsigned short>(rounded >> 16));
}

enum class Form { f32, bf16_with_master, bf16_rounded_stochastically };

// `n` elements of one tensor from `at` on: loaded, all before the first is used, then updated and
// stored.
template <Form form, class G, class Rule>
struct Quads {
  static constexpr int rows = Rule::rows, some_rows = at_least_one(rows);
  // The type of the weights that are updated.
  using W = std::conditional_t<form == Form::bf16_rounded_stochastically, __nv_bfloat16, float>;
  const Entry<rows>& t;
  int64_t at;
  int n;
  bool whole;
  bits_t<G> grad;  // and the others, only if `whole`
  bits_t<W> w;
  uint4 state[some_rows];

  __device__ __forceinline__ Quads(const Entry<rows>& entry, int64_t begin)
      : t(entry),
        at(begin),
        n(t.count - at < width ? static_cast<int>(t.count - at) : width),
        whole(t.aligned && n == width),
        grad(load<G>(grads())),
        w(load<W>(weights())) {
#pragma unroll
    for (int row = 0; row < rows; ++row) state[row] = load<float>(t.state[row] + at);
  }

  __device__ __forceinline__ const G* grads() const { return static_cast<const G*>(t.grad) + at; }
  __device__ __forceinline__ const W* weights() const {
    const void* all = form == Form::bf16_with_master ? t.master : t.parameter;
    return static_cast<const W*>(all) + at;
  }
  template <class T>
  __device__ __forceinline__ bits_t<T> load(const T* from) const {
    return load_streaming_if(reinterpret_cast<const bits_t<T>*>(from), whole);
  }
  template <bool all, class T>
  __device__ __forceinline__ Quad quad(const bits_t<T>& bits, const T* from) const {
    return all ? quad_of<T>(bits) : load_cut(from, n);
  }

  // Rounding uses the lower 16 bits of `words` >> shift.
  __device__ __forceinline__ void update(const typename Rule::Step& step, const Words& words,
                                         int shift) const {
    if (whole) return update<true>(step, words, shift);
    update<false>(step, words, shift);
  }
  template <bool all>
  __device__ __forceinline__ void update(const typename Rule::Step& step, const Words& words,
                                         int shift) const {
    const Quad g = quad<all, G>(grad, grads());
    Quad next = quad<all, W>(w, weights()), rows_next[some_rows] = {};
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      rows_next[row] = quad<all, float>(state[row], t.state[row] + at);
    }
#pragma unroll
    for (int k = 0; k < width; ++k) step.take(g.at[k], next.at[k], rows_next, k);
#pragma unroll
    for (int row = 0; row < rows; ++row) store_quad(t.state[row] + at, rows_next[row], n, all);
    auto* parameter = static_cast<__nv_bfloat16*>(t.parameter) + at;
    if constexpr (form == Form::f32) {
      store_quad(static_cast<float*>(t.parameter) + at, next, n, all);
    } else if constexpr (form == Form::bf16_with_master) {
      store_quad(t.master + at, next, n, all);
      store_quad(parameter, next, n, all);
    } else {
      Packed<__nv_bfloat16> rounded;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        rounded.at[k] = round_by(next.at[k], (words.at[k] >> shift) & 0xffff);
      }
      store_quad(parameter, rounded, n, all);
    }
  }
};

template <Form form, class G, class Rule>
__device__ __forceinline__ void update_piece(const Arguments<Rule>& all,
                                             const Entry<Rule::rows>& t) {
  const int64_t begin = int64_t{blockIdx.x - t.first} * piece + threadIdx.x * width;
  Quads<form, G, Rule> lower(t, begin), upper(t, begin + half);
  const bool finite = all.clip[2] != 0;
  if (!finite) return;
  Words words = {};
  if constexpr (form == Form::bf16_rounded_stochastically) {
    const uint2 key = {all.random[0], all.random[1]};
    const auto draw =
        t.first_draw + static_cast<uint32_t>(int64_t{blockIdx.x - t.first} * (half / width));
    const uint4 w =
        philox(key, make_uint4(draw + threadIdx.x, t.index, all.random[2], 0xffffffffu));
    words = {{w.x, w.y, w.z, w.w}};
  }
  const typename Rule::Step step(all.rule, all.clip[0], t.rate, t.decay);
  lower.update(step, words, 0);
  upper.update(step, words, 16);
}

template <Form form, class Rule>
__global__ void __launch_bounds__(threads, 4)
    update_kernel(const __grid_constant__ Arguments<Rule> all) {
  const Entry<Rule::rows>& t = all.tensors.of_block(blockIdx.x);
  if (form == Form::f32 || t.grad_is_f32) {
    update_piece<form, float>(all, t);
  } else {
    update_piece<form, __nv_bfloat16>(all, t);
  }
}

template <class KernelEntry>
bool all_aligned(const KernelEntry& t) {
  const auto is_aligned = [](const View& v) {
    return reinterpret_cast<uintptr_t>(v.data()) % 16 == 0;
  };
  for (const View& row : t.state()) {
    if (!is_aligned(row)) return false;
  }
  return is_aligned(t.parameter) && is_aligned(t.master) && is_aligned(t.grad);
}

template <int rows, class KernelEntry>
Entry<rows> device_entry(const KernelEntry& t, unsigned first_block) {
  Entry<rows> entry{.parameter = t.parameter.data(),
                    .grad = t.grad.data(),
                    .master = t.master.template as<float>(),
                    .count = t.parameter.numel(),
                    .first = first_block,
                    .index = t.index,
                    .first_draw = static_cast<uint32_t>(t.first / piece * (half / width)),
                    .decay = t.decay,
                    .grad_is_f32 = t.grad.dtype() == DType::f32,
                    .aligned = all_aligned(t),
                    .rate = t.rate};
  const auto state = t.state();
  for (int row = 0; row < rows; ++row) {
    entry.state[row] = state[static_cast<size_t>(row)].template as<float>();
  }
  return entry;
}

// One step of all tensors.
template <class Rule, class Kernel>
void update(const Kernel& k, const Rule& rule, CudaStream& stream) {
  static_assert(Rule::capacity == decltype(k.tensors)::capacity);
  static_assert(sizeof(Arguments<Rule>) <= max_parameter_bytes);
  Arguments<Rule> all{.tensors = {},
                      .clip = k.clip.template as<float>(),
                      .random = k.random.template as<uint32_t>(),
                      .rule = rule};
  unsigned blocks = 0;
  for (const auto& t : k.tensors) {
    all.tensors.add(device_entry<Rule::rows>(t, blocks));
    blocks += static_cast<unsigned>(ceil_div<int64_t>(t.parameter.numel(), piece));
  }
  if (blocks == 0) return;
  const bool f32 = k.tensors[0].parameter.dtype() == DType::f32;
  auto* kernel = f32        ? update_kernel<Form::f32, Rule>
                 : k.random ? update_kernel<Form::bf16_rounded_stochastically, Rule>
                            : update_kernel<Form::bf16_with_master, Rule>;
  launch_kernel(stream, kernel, {.grid = dim3(blocks), .block = dim3(threads)}, all);
}

}  // namespace spool::cuda::weights
