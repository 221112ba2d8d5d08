#include "spool/kernels/sum_ranks.h"

#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/cuda/table.cuh"

namespace spool {
namespace cuda {
namespace {

constexpr int rank_block = 256, slice_piece = rank_block * map_width;
constexpr int ranks_at_once = 4;  // whose terms a thread loads before it adds the first

struct SliceEntry {
  float* out = nullptr;
  const void* own = nullptr;
  int64_t count = 0, at = 0;
  unsigned first = 0;  // block
  bool accumulate = false, own_is_f32 = false, aligned = false;
};

struct RankTerms {
  Table<SliceEntry, decltype(SumRanks::slices)::capacity> slices;
  const float* pieces[SumRanks::max_ranks];  // null for this rank
  int ranks;
};
static_assert(sizeof(RankTerms) <= max_parameter_bytes);

// Sums n elements from i on.  T is the type of this rank's term.
template <int n, class T>
__device__ __forceinline__ void sum_terms(const RankTerms& all, const SliceEntry& e, int64_t i) {
  const Raw<n, T> own = load_raw<n>(static_cast<const T*>(e.own) + i);
  const Raw<n, float> before = load_raw<n>(e.out + i, e.accumulate);
  Floats<n> total = repeated<n>(-0.0f);  // -0 + x is x, for any x
  for (int first = 0; first < all.ranks; first += ranks_at_once) {
    const float* from[ranks_at_once];
    Raw<n, float> raw[ranks_at_once];
#pragma unroll
    for (int j = 0; j < ranks_at_once; ++j) {
      from[j] = first + j < all.ranks ? all.pieces[first + j] : nullptr;
      raw[j] = load_raw<n>(from[j] + e.at + i, from[j] != nullptr);
    }
    if (first == 0 && e.accumulate) total = floats_of(before);
#pragma unroll
    for (int j = 0; j < ranks_at_once; ++j) {
      if (first + j >= all.ranks) break;
      const Floats<n> x = from[j] ? floats_of(raw[j]) : floats_of(own);
#pragma unroll
      for (int k = 0; k < n; ++k) total.at[k] += x.at[k];
    }
  }
  store<n>(e.out + i, total);
}

template <class T>
__device__ __forceinline__ void sum_slice(const RankTerms& all, const SliceEntry& e) {
  const int64_t begin =
      int64_t{blockIdx.x - e.first} * slice_piece + int64_t{threadIdx.x} * map_width;
  if (e.aligned && begin + map_width <= e.count) {
    sum_terms<map_width, T>(all, e, begin);
  } else {
    const int64_t end = begin + map_width < e.count ? begin + map_width : e.count;
    for (int64_t i = begin; i < end; ++i) sum_terms<1, T>(all, e, i);
  }
}

__global__ void __launch_bounds__(rank_block)
    sum_ranks_kernel(const __grid_constant__ RankTerms all) {
  const SliceEntry& e = all.slices.of_block(blockIdx.x);
  if (e.own_is_f32) {
    sum_slice<float>(all, e);
  } else {
    sum_slice<__nv_bfloat16>(all, e);
  }
}

// Whether eight elements can be loaded at once of everything that a slice reads and writes.
bool slice_is_aligned(const SumRanks& k, const SumRanks::Entry& e) {
  const auto whole = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return is_aligned(e.out.view) && is_aligned(e.own) && e.at % Pack<float>::size == 0 &&
         std::all_of(k.pieces.begin(), k.pieces.end(), whole);
}

}  // namespace
}  // namespace cuda

void run(const SumRanks& k, CudaStream& stream) {
  cuda::RankTerms all = {};
  for (const void* piece : k.pieces) all.pieces[all.ranks++] = static_cast<const float*>(piece);
  unsigned blocks = 0;
  for (const SumRanks::Entry& e : k.slices) {
    check(e.out.view.dtype() == DType::f32, "a sum of ranks on cuda must be f32, not ",
          name(e.out.view.dtype()));
    all.slices.add({.out = e.out.view.as<float>(),
                    .own = e.own.data(),
                    .count = e.own.numel(),
                    .at = e.at,
                    .first = blocks,
                    .accumulate = e.out.accumulate,
                    .own_is_f32 = e.own.dtype() == DType::f32,
                    .aligned = cuda::slice_is_aligned(k, e)});
    blocks += static_cast<unsigned>(ceil_div<int64_t>(e.own.numel(), cuda::slice_piece));
  }
  if (blocks == 0) return;
  cuda::launch_kernel(stream, cuda::sum_ranks_kernel,
                      {.grid = dim3(blocks), .block = dim3(cuda::rank_block)}, all);
}

}  // namespace spool
