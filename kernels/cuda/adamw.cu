#include "spool/kernels/adamw.h"

#include <limits>

#include "spool/kernels/cuda/philox.cuh"
#include "spool/kernels/cuda/table.cuh"

namespace spool {
namespace cuda {
namespace {

// A thread updates `width` elements and the `width` elements half a piece further on.  So
// neighbours in a warp access neighbours in memory, whatever the types, and one draw serves both.
constexpr int width = 4, update_block = 256, half = update_block * width, piece = 2 * half;
static_assert(piece == AdamW::granule);

struct AdamWEntry {
  void *parameter = nullptr, *grad = nullptr;
  float *master = nullptr, *m = nullptr, *v = nullptr;
  int64_t count = 0;
  unsigned first = 0, index = 0;
  uint32_t first_draw = 0;  // counter of the slice's first draw
  float decay = 0;
  bool grad_is_f32 = false, aligned = false;
};

struct AdamWTable {
  Table<AdamWEntry, decltype(AdamW::tensors)::capacity> tensors;
  const float *schedule, *clip;
  const uint32_t* random;
  float beta1, beta2, eps;
};
static_assert(sizeof(AdamWTable) <= max_parameter_bytes);

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

// The first n elements, then zeros; n is `width` if `whole`.
template <class T>
__device__ __forceinline__ Quad load_quad(const T* from, int n, bool whole) {
  Quad x = {};
  if (whole) {
    const bits_t<T> bits = __ldcs(reinterpret_cast<const bits_t<T>*>(from));
    Packed<T> packed;
    memcpy(&packed, &bits, sizeof bits);
#pragma unroll
    for (int k = 0; k < width; ++k) x.at[k] = to_float(packed.at[k]);
  } else {
#pragma unroll
    for (int k = 0; k < width; ++k) {
      if (k < n) x.at[k] = to_float(from[k]);
    }
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

// The values that are the same for all elements of a tensor.
struct AdamWStep {
  float beta1, beta2, eps, rate, inverse1, inverse2, factor, decay;

  __device__ AdamWStep(const AdamWTable& t, float with_decay)
      : beta1(t.beta1),
        beta2(t.beta2),
        eps(t.eps),
        rate(t.schedule[0]),
        inverse1(1 / t.schedule[1]),
        inverse2(1 / t.schedule[2]),
        factor(t.clip[0]),
        decay(with_decay) {}

  // Updates w, m and v of one element.
  __device__ __forceinline__ void take(float grad, float& w, float& m, float& v) const {
    const float g = factor * grad;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const float direction = __fdividef(m * inverse1, sqrtf(v * inverse2) + eps);
    w -= rate * (direction + decay * w);
  }
};

// The rounding of kernels/adamw.h.
__device__ __forceinline__ __nv_bfloat16 round_by(float x, uint32_t r) {
  constexpr uint32_t infinity = 0x7f800000, quiet = 0x400000;
  const uint32_t u = __float_as_uint(x);
  const bool overflows = ((u + r) & infinity) == infinity;  // or x is not finite
  const uint32_t rounded = x != x ? u | quiet : overflows ? u : u + r;
  return __ushort_as_bfloat16(static_cast<unsigned short>(rounded >> 16));
}

enum class Weights { f32, bf16_with_master, bf16_rounded_stochastically };

// `n` elements of one tensor from `at` on: loaded, then updated and stored.
template <Weights form, class G>
struct Quads {
  const AdamWEntry& t;
  int64_t at;
  int n;
  bool whole;
  Quad grad, w, m, v;

  __device__ __forceinline__ Quads(const AdamWEntry& entry, int64_t begin)
      : t(entry),
        at(begin),
        n(t.count - at < width ? static_cast<int>(t.count - at) : width),
        whole(t.aligned && n == width),
        grad(load_quad(static_cast<const G*>(t.grad) + at, n, whole)),
        w(load_w()),
        m(load_quad(t.m + at, n, whole)),
        v(load_quad(t.v + at, n, whole)) {}

  __device__ __forceinline__ Quad load_w() const {
    if constexpr (form == Weights::bf16_with_master) {
      return load_quad(t.master + at, n, whole);
    } else if constexpr (form == Weights::f32) {
      return load_quad(static_cast<const float*>(t.parameter) + at, n, whole);
    } else {
      return load_quad(static_cast<const __nv_bfloat16*>(t.parameter) + at, n, whole);
    }
  }

  // Rounding uses the lower 16 bits of `words` >> shift.
  __device__ __forceinline__ void update(const AdamWStep& step, const Words& words, int shift) {
#pragma unroll
    for (int k = 0; k < width; ++k) step.take(grad.at[k], w.at[k], m.at[k], v.at[k]);
    store_quad(t.m + at, m, n, whole);
    store_quad(t.v + at, v, n, whole);
    auto* parameter = static_cast<__nv_bfloat16*>(t.parameter) + at;
    if constexpr (form == Weights::f32) {
      store_quad(static_cast<float*>(t.parameter) + at, w, n, whole);
    } else if constexpr (form == Weights::bf16_with_master) {
      store_quad(t.master + at, w, n, whole);
      store_quad(parameter, w, n, whole);
    } else {
      Packed<__nv_bfloat16> rounded;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        rounded.at[k] = round_by(w.at[k], (words.at[k] >> shift) & 0xffff);
      }
      store_quad(parameter, rounded, n, whole);
    }
  }
};

template <Weights form, class G>
__device__ __forceinline__ void update_piece(const AdamWTable& table, const AdamWEntry& t) {
  const int64_t begin = int64_t{blockIdx.x - t.first} * piece + threadIdx.x * width;
  Quads<form, G> lower(t, begin), upper(t, begin + half);
  const bool finite = table.clip[2] != 0;
  if (!finite) return;
  Words words = {};
  if constexpr (form == Weights::bf16_rounded_stochastically) {
    const uint2 key = {table.random[0], table.random[1]};
    const auto draw =
        t.first_draw + static_cast<uint32_t>(int64_t{blockIdx.x - t.first} * (half / width));
    const uint4 w =
        philox(key, make_uint4(draw + threadIdx.x, t.index, table.random[2], 0xffffffffu));
    words = {{w.x, w.y, w.z, w.w}};
  }
  const AdamWStep step(table, t.decay);
  lower.update(step, words, 0);
  upper.update(step, words, 16);
}

template <Weights form>
__global__ void __launch_bounds__(update_block)
    adamw_kernel(const __grid_constant__ AdamWTable table) {
  const AdamWEntry& t = table.tensors.of_block(blockIdx.x);
  if (form == Weights::f32 || t.grad_is_f32) {
    update_piece<form, float>(table, t);
  } else {
    update_piece<form, __nv_bfloat16>(table, t);
  }
}

constexpr double infinite = std::numeric_limits<double>::infinity();

__global__ void clip_factor_kernel(float* clip, const double* squared, float limit) {
  const double norm = sqrt(*squared);
  clip[0] = limit > 0 && norm > limit ? static_cast<float>(limit / norm) : 1.0f;
  clip[1] = static_cast<float>(norm);
  clip[2] = norm < infinite ? 1.0f : 0.0f;
}

bool all_aligned(const AdamW::Entry& t) {
  for (const View& v : {t.parameter, t.master, t.m, t.v, t.grad}) {
    if (reinterpret_cast<uintptr_t>(v.data()) % 16 != 0) return false;
  }
  return true;
}

}  // namespace
}  // namespace cuda

void run(const AdamW& k, CudaStream& stream) {
  cuda::AdamWTable table{.tensors = {},
                         .schedule = k.schedule.as<float>(),
                         .clip = k.clip.as<float>(),
                         .random = k.random.as<uint32_t>(),
                         .beta1 = k.beta1,
                         .beta2 = k.beta2,
                         .eps = k.eps};
  unsigned blocks = 0;
  for (const AdamW::Entry& t : k.tensors) {
    check_entry(k, t);
    check(t.parameter.dtype() == k.tensors[0].parameter.dtype(),
          "adamw on cuda: the parameters of a launch must have one type");
    table.tensors.add(
        {.parameter = t.parameter.data(),
         .grad = t.grad.data(),
         .master = t.master.as<float>(),
         .m = t.m.as<float>(),
         .v = t.v.as<float>(),
         .count = t.m.numel(),
         .first = blocks,
         .index = t.index,
         .first_draw = static_cast<uint32_t>(t.first / cuda::piece * (cuda::half / cuda::width)),
         .decay = t.decay,
         .grad_is_f32 = t.grad.dtype() == DType::f32,
         .aligned = cuda::all_aligned(t)});
    blocks += static_cast<unsigned>(cuda::ceil_div<int64_t>(t.m.numel(), cuda::piece));
  }
  if (blocks == 0) return;
  const bool f32 = k.tensors[0].parameter.dtype() == DType::f32;
  auto* kernel = f32        ? cuda::adamw_kernel<cuda::Weights::f32>
                 : k.random ? cuda::adamw_kernel<cuda::Weights::bf16_rounded_stochastically>
                            : cuda::adamw_kernel<cuda::Weights::bf16_with_master>;
  cuda::launch_kernel(stream, kernel, {.grid = dim3(blocks), .block = dim3(cuda::update_block)},
                      table);
}

void run(const ClipFactor& k, CudaStream& stream) {
  cuda::launch_kernel(stream, cuda::clip_factor_kernel, {.grid = dim3(1), .block = dim3(1)},
                      k.clip.as<float>(), k.squared.as<double>(), k.limit);
}

}  // namespace spool
