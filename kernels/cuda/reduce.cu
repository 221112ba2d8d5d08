#include "spool/kernels/reduce.h"

#include "spool/kernels/cuda/table.cuh"
#include "spool/kernels/reduce_sizes.h"

namespace spool {
namespace cuda {
namespace {

constexpr int piece_block = 256, last_block = 1024;
constexpr int packs_at_once = 4;  // packs that a thread loads before it adds the first

struct SumEntry {
  const void* x = nullptr;
  int64_t count = 0;
  unsigned first = 0;
  bool is_f32 = false;
};
using SumTable = Table<SumEntry, decltype(SquaredNorm::x)::capacity>;
static_assert(sizeof(SumTable) + sizeof(double*) <= max_parameter_bytes);

struct Identity {
  static __device__ __forceinline__ double of(float x) { return double{x}; }
};
struct Square {
  static __device__ __forceinline__ double of(float x) { return double{x} * double{x}; }
};

// This thread's share of the sum of f over n elements.
template <class F, class T>
__device__ __forceinline__ double share(const T* x, int n) {
  const bool aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  const int packs = aligned ? n / Pack<T>::size : 0;
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0;
  for (int first = thread; first < packs; first += packs_at_once * piece_block) {
    uint4 bits[packs_at_once];
#pragma unroll
    for (int j = 0; j < packs_at_once; ++j) {
      const int i = first + j * piece_block;
      bits[j] = load_bits(x + i * Pack<T>::size, i < packs);
    }
#pragma unroll
    for (int j = 0; j < packs_at_once; ++j) {
      if (first + j * piece_block >= packs) break;
      const Pack<T> pack = pack_of<T>(bits[j]);
#pragma unroll
      for (int k = 0; k < Pack<T>::size; ++k) sum += F::of(to_float(pack.at[k]));
    }
  }
  for (int i = packs * Pack<T>::size + thread; i < n; i += piece_block) {
    sum += F::of(to_float(x[i]));
  }
  return sum;
}

template <class F>
__global__ void __launch_bounds__(piece_block)
    sum_pieces_kernel(const __grid_constant__ SumTable table, double* partials) {
  SPOOL_SHARED(double, scratch, warp_lanes);
  const SumEntry& entry = table.of_block(blockIdx.x);
  const int64_t begin = int64_t{blockIdx.x - entry.first} * sum_piece;
  const int64_t rest = entry.count - begin;
  const int n = static_cast<int>(rest < sum_piece ? rest : sum_piece);
  const double mine = entry.is_f32
                          ? share<F>(static_cast<const float*>(entry.x) + begin, n)
                          : share<F>(static_cast<const __nv_bfloat16*>(entry.x) + begin, n);
  const double sum = block_sum(mine, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// One number, f32 or f64.
struct Scalar {
  void* data = nullptr;
  bool is_f64 = false;

  Scalar() = default;
  explicit Scalar(const View& v) : data(v.data()), is_f64(v.dtype() == DType::f64) {
    check(!v || is_f64 || v.dtype() == DType::f32, "a sum on cuda must be f32 or f64, not ",
          name(v.dtype()));
  }
  __device__ double get() const {
    return is_f64 ? *static_cast<const double*>(data) : *static_cast<const float*>(data);
  }
  __device__ void put(double x) const {
    if (is_f64) {
      *static_cast<double*>(data) = x;
    } else {
      *static_cast<float*>(data) = static_cast<float>(x);
    }
  }
};

struct Result {
  Scalar out, by;
  double factor = 1;
  bool accumulate = false;
};

__global__ void __launch_bounds__(last_block)
    sum_last_kernel(const double* partials, int64_t count, Result result) {
  SPOOL_SHARED(double, scratch, warp_lanes);
  double mine = 0;
  for (int64_t i = threadIdx.x; i < count; i += last_block) mine += partials[i];
  const double sum = block_sum(mine, scratch);
  if (threadIdx.x != 0) return;
  const double scaled = sum * (result.by.data ? result.factor * result.by.get() : result.factor);
  result.out.put(result.accumulate ? scaled + result.out.get() : scaled);
}

class Sum {
 public:
  void add(const View& x) {
    check(x.dtype() == DType::f32 || x.dtype() == DType::bf16,
          "a sum on cuda takes values of f32 or bf16, not ", name(x.dtype()));
    table_.add(
        {.x = x.data(), .count = x.numel(), .first = blocks_, .is_f32 = x.dtype() == DType::f32});
    blocks_ += static_cast<unsigned>(ceil_div(x.numel(), sum_piece));
  }

  template <class F>
  void run(CudaStream& stream, const View& workspace, const Result& result) const {
    auto* partials = workspace.as<double>();
    if (blocks_ > 0) {
      launch_kernel(stream, sum_pieces_kernel<F>,
                    {.grid = dim3(blocks_), .block = dim3(piece_block)}, table_, partials);
    }
    launch_kernel(stream, sum_last_kernel, {.grid = dim3(1), .block = dim3(last_block)}, partials,
                  int64_t{blocks_}, result);
  }

 private:
  SumTable table_;
  unsigned blocks_ = 0;
};

}  // namespace
}  // namespace cuda

void run(const SumAll& k, CudaStream& stream) {
  cuda::Sum sum;
  sum.add(k.x);
  sum.run<cuda::Identity>(stream, k.workspace,
                          {.out = cuda::Scalar(k.out.view),
                           .by = cuda::Scalar(k.by),
                           .factor = k.factor,
                           .accumulate = k.out.accumulate});
}

void run(const SquaredNorm& k, CudaStream& stream) {
  cuda::Sum sum;
  for (const View& x : k.x) sum.add(x);
  sum.run<cuda::Square>(
      stream, k.workspace,
      {.out = cuda::Scalar(k.out.view), .by = {}, .accumulate = k.out.accumulate});
}

}  // namespace spool
