#include "spool/kernels/sum_ranks.h"

#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/cuda/table.cuh"

namespace spool {
namespace cuda {
namespace {

constexpr int rank_block = 256, slice_piece = rank_block * map_width;
constexpr int ranks_at_once = 4;  // whose terms a thread loads before it adds the first

struct SliceEntry {
  void* out = nullptr;
  const void* own = nullptr;
  int64_t count = 0, at = 0;
  unsigned first = 0;  // block
  bool out_is_f32 = false, own_is_f32 = false, sent_is_f32 = false;
  bool accumulate = false, aligned = false;
};

struct RankTerms {
  Table<SliceEntry, decltype(SumRanks::slices)::capacity> slices;
  const void* pieces[SumRanks::max_ranks];  // null for this rank
  int ranks;
};
static_assert(sizeof(RankTerms) <= max_parameter_bytes);

// Sums n elements from i on.  G is the type of out, T of this rank's term, and P of the pieces.
template <int n, class G, class T, class P>
__device__ __forceinline__ void sum_terms(const RankTerms& all, const SliceEntry& e, int64_t i) {
  const Raw<n, T> own = load_raw<n>(static_cast<const T*>(e.own) + i);
  G* const out = static_cast<G*>(e.out) + i;
  const Raw<n, G> before = load_raw<n>(out, e.accumulate);
  Floats<n> total = repeated<n>(-0.0f);  // -0 + x is x, for any x
  for (int first = 0; first < all.ranks; first += ranks_at_once) {
    const P* from[ranks_at_once];
    Raw<n, P> raw[ranks_at_once];
#pragma unroll
    for (int j = 0; j < ranks_at_once; ++j) {
      from[j] = static_cast<const P*>(first + j < all.ranks ? all.pieces[first + j] : nullptr);
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
  store<n>(out, total);
}

template <class G, class T, class P>
__device__ __forceinline__ void sum_slice(const RankTerms& all, const SliceEntry& e) {
  const int64_t begin =
      int64_t{blockIdx.x - e.first} * slice_piece + int64_t{threadIdx.x} * map_width;
  if (e.aligned && begin + map_width <= e.count) {
    sum_terms<map_width, G, T, P>(all, e, begin);
  } else {
    const int64_t end = begin + map_width < e.count ? begin + map_width : e.count;
    for (int64_t i = begin; i < end; ++i) sum_terms<1, G, T, P>(all, e, i);
  }
}

__global__ void __launch_bounds__(rank_block)
    sum_ranks_kernel(const __grid_constant__ RankTerms all) {
  const SliceEntry& e = all.slices.of_block(blockIdx.x);
  using bf16 = __nv_bfloat16;
  if (e.own_is_f32) {
    sum_slice<float, float, float>(all, e);
  } else if (e.sent_is_f32) {
    sum_slice<float, bf16, float>(all, e);
  } else if (e.out_is_f32) {
    sum_slice<float, bf16, bf16>(all, e);
  } else {
    sum_slice<bf16, bf16, bf16>(all, e);
  }
}

// Whether eight elements can be loaded at once of everything that a slice reads and writes.
bool slice_is_aligned(const SumRanks& k, const SumRanks::Entry& e) {
  const auto whole = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  const size_t at = static_cast<size_t>(e.at) * size_of(k.type_sent(e));
  return is_aligned(e.out.view) && is_aligned(e.own) && at % 16 == 0 &&
         std::all_of(k.pieces.begin(), k.pieces.end(), whole);
}

}  // namespace
}  // namespace cuda

void run(const SumRanks& k, CudaStream& stream) {
  cuda::RankTerms all = {};
  for (const void* piece : k.pieces) all.pieces[all.ranks++] = piece;
  unsigned blocks = 0;
  for (const SumRanks::Entry& e : k.slices) {
    const DType out = e.out.view.dtype();
    check(out != DType::f64, "a sum of ranks on cuda must be f32 or bf16, not ", name(out));
    all.slices.add({.out = e.out.view.data(),
                    .own = e.own.data(),
                    .count = e.own.numel(),
                    .at = e.at,
                    .first = blocks,
                    .out_is_f32 = out == DType::f32,
                    .own_is_f32 = e.own.dtype() == DType::f32,
                    .sent_is_f32 = k.type_sent(e) == DType::f32,
                    .accumulate = e.out.accumulate,
                    .aligned = cuda::slice_is_aligned(k, e)});
    blocks += static_cast<unsigned>(ceil_div<int64_t>(e.own.numel(), cuda::slice_piece));
  }
  if (blocks == 0) return;
  cuda::launch_kernel(stream, cuda::sum_ranks_kernel,
                      {.grid = dim3(blocks), .block = dim3(cuda::rank_block)}, all);
}

}  // namespace spool
