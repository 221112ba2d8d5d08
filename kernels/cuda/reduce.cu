#include "spool/kernels/reduce.h"

#include "spool/kernels/cuda/table.cuh"
#include "spool/kernels/reduce_sizes.h"

namespace spool {
namespace cuda {
namespace {

constexpr int piece_block = 256, last_block = 1024, warps = piece_block / warp_lanes;
constexpr int packs_at_once = 4;  // packs that a thread loads before it adds the first

struct SumEntry {
  const void* x = nullptr;
  int64_t count = 0;
  unsigned first = 0;  // granule
  bool is_f32 = false;

  explicit SumEntry(const View& v)
      : x(v.data()), count(v.numel()), is_f32(v.dtype() == DType::f32) {
    check(is_f32 || v.dtype() == DType::bf16, "a sum on cuda takes values of f32 or bf16, not ",
          name(v.dtype()));
  }
  SumEntry() = default;
};
using SumTable = Table<SumEntry, decltype(SquaredNorm::x)::capacity>;
static_assert(sizeof(SumTable) + 2 * sizeof(double*) <= max_parameter_bytes);

struct Identity {
  static __device__ __forceinline__ double of(float x) { return double{x}; }
};
struct Square {
  static __device__ __forceinline__ double of(float x) { return double{x} * double{x}; }
};

// This thread's share of the sum of f over n elements, which `threads` threads add up.
template <class F, int threads, class T>
__device__ __forceinline__ double share(const T* x, int n) {
  const bool aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  const int packs = aligned ? n / Pack<T>::size : 0;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  double sum = 0;
  for (int first = thread; first < packs; first += packs_at_once * threads) {
    uint4 bits[packs_at_once];
#pragma unroll
    for (int j = 0; j < packs_at_once; ++j) {
      const int i = first + j * threads;
      bits[j] = load_bits(x + i * Pack<T>::size, i < packs);
    }
#pragma unroll
    for (int j = 0; j < packs_at_once; ++j) {
      if (first + j * threads >= packs) break;
      const Pack<T> pack = pack_of<T>(bits[j]);
#pragma unroll
      for (int k = 0; k < Pack<T>::size; ++k) sum += F::of(to_float(pack.at[k]));
    }
  }
  for (int i = packs * Pack<T>::size + thread; i < n; i += threads) {
    sum += F::of(to_float(x[i]));
  }
  return sum;
}

// This thread's share of a piece of an entry, from element `begin` on.
template <class F, int threads, int piece>
__device__ __forceinline__ double share_of(const SumEntry& entry, int64_t begin) {
  const int64_t rest = entry.count - begin;
  const int n = static_cast<int>(rest < piece ? rest : piece);
  return entry.is_f32 ? share<F, threads>(static_cast<const float*>(entry.x) + begin, n)
                      : share<F, threads>(static_cast<const __nv_bfloat16*>(entry.x) + begin, n);
}

__global__ void __launch_bounds__(piece_block)
    sum_pieces_kernel(const __grid_constant__ SumEntry entry, double* partials) {
  SPOOL_SHARED(double, scratch, warp_lanes);
  const int64_t begin = int64_t{blockIdx.x} * sum_piece;
  const double mine = share_of<Identity, piece_block, sum_piece>(entry, begin);
  const double sum = block_sum(mine, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// Each warp sums a granule.
__global__ void __launch_bounds__(piece_block)
    square_granules_kernel(const __grid_constant__ SumTable table, unsigned granules, double* out) {
  const unsigned granule = blockIdx.x * warps + threadIdx.x / warp_lanes;
  if (granule >= granules) return;
  const SumEntry& entry = table.of_block(granule);
  const int64_t begin = int64_t{granule - entry.first} * norm_granule;
  const double sum = warp_sum(share_of<Square, warp_lanes, norm_granule>(entry, begin));
  if (threadIdx.x % warp_lanes == 0) out[granule] = sum;
}

// The sum, in order, of the numbers of a block: `span` of them, `stride` apart.
__global__ void __launch_bounds__(last_block)
    sum_in_order_kernel(const double* all, int64_t count, int64_t span, int64_t stride,
                        double* out) {
  SPOOL_SHARED(double, some, last_block);
  const int64_t begin = int64_t{blockIdx.x} * span;
  const int64_t end = begin + span < count ? begin + span : count;
  double sum = 0;
  for (int64_t at = begin; at < end; at += last_block) {
    const int n = static_cast<int>(end - at < last_block ? end - at : last_block);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < n) some[thread] = all[(at + thread) * stride];
    __syncthreads();
    if (thread == 0) {
      for (int i = 0; i < n; ++i) sum += some[i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) out[begin * stride] = sum;
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

}  // namespace
}  // namespace cuda

void run(const SumAll& k, CudaStream& stream) {
  const cuda::SumEntry entry(k.x);
  const auto blocks = static_cast<unsigned>(ceil_div(k.x.numel(), cuda::sum_piece));
  auto* partials = k.workspace.as<double>();
  if (blocks > 0) {
    cuda::launch_kernel(stream, cuda::sum_pieces_kernel,
                        {.grid = dim3(blocks), .block = dim3(cuda::piece_block)}, entry, partials);
  }
  const cuda::Result result{.out = cuda::Scalar(k.out.view),
                            .by = cuda::Scalar(k.by),
                            .factor = k.factor,
                            .accumulate = k.out.accumulate};
  cuda::launch_kernel(stream, cuda::sum_last_kernel,
                      {.grid = dim3(1), .block = dim3(cuda::last_block)}, partials, int64_t{blocks},
                      result);
}

void run(const SquaredNorm& k, CudaStream& stream) {
  cuda::SumTable table;
  unsigned granules = 0;
  for (const View& x : k.x) {
    cuda::SumEntry entry(x);
    entry.first = granules;
    table.add(entry);
    granules += static_cast<unsigned>(ceil_div(x.numel(), norm_granule));
  }
  if (granules == 0) return;
  const unsigned blocks = ceil_div<unsigned>(granules, cuda::warps);
  cuda::launch_kernel(stream, cuda::square_granules_kernel,
                      {.grid = dim3(blocks), .block = dim3(cuda::piece_block)}, table, granules,
                      k.out.as<double>());
}

// The sum of a block takes the place of its first granule.
void run(const SumGranules& k, CudaStream& stream) {
  auto* all = k.granules.as<double>();
  const int64_t count = k.granules.numel(), blocks = ceil_div(count, granules_of_block);
  if (blocks > 0) {
    cuda::launch_kernel(stream, cuda::sum_in_order_kernel,
                        {.grid = dim3(unsigned(blocks)), .block = dim3(cuda::last_block)}, all,
                        count, granules_of_block, /*stride=*/int64_t{1}, all);
  }
  cuda::launch_kernel(stream, cuda::sum_in_order_kernel,
                      {.grid = dim3(1), .block = dim3(cuda::last_block)}, all, blocks,
                      /*span=*/blocks, /*stride=*/granules_of_block, k.out.as<double>());
}

}  // namespace spool
