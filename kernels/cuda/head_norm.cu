// A team of lanes has a head: it keeps the head's numbers in registers, `slots` times `width` in a
// lane, and reads them once.

#include "spool/kernels/head_norm.h"

#include "spool/kernels/cuda/column_sums.cuh"
#include "spool/kernels/cuda/map_source.cuh"
#include "spool/kernels/head_norm_sizes.h"

namespace spool {
namespace cuda {
namespace {

constexpr int head_threads = 256, head_warps = head_threads / warp_lanes, longest_head = 256;

template <int width_, int lanes_, int slots_>
struct HeadTeam {
  static constexpr int width = width_, lanes = lanes_, slots = slots_;
  static constexpr int teams = head_threads / lanes;  // of a block

  static __device__ __forceinline__ int number() { return static_cast<int>(threadIdx.x) / lanes; }
  static __device__ __forceinline__ int column(int slot) {
    return (slot * lanes + static_cast<int>(threadIdx.x) % lanes) * width;
  }
  // The sum over the team, in a fixed order.  All lanes of the warp take part.
  static __device__ __forceinline__ float sum(float x) {
#pragma unroll
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
      x += __shfl_xor_sync(all_lanes, x, apart);
    }
    return x;
  }
  // The sum over the teams of a warp, of each of their lanes.
  static __device__ __forceinline__ float sum_of_teams(float x) {
#pragma unroll
    for (int apart = lanes; apart < warp_lanes; apart *= 2) {
      x += __shfl_xor_sync(all_lanes, x, apart);
    }
    return x;
  }
};

// A lane's numbers of a head; zeros from D on, and all zeros unless `in_range`.
template <class Team, class T>
struct HeadNumbers {
  Raw<Team::width, T> at[Team::slots];

  __device__ __forceinline__ HeadNumbers(const T* head, int64_t D, bool in_range) {
#pragma unroll
    for (int s = 0; s < Team::slots; ++s) {
      const int c = Team::column(s);
      at[s] = load_raw<Team::width>(head + c, in_range && c < D);
    }
  }
  __device__ __forceinline__ Floats<Team::width> floats(int slot) const {
    return floats_of(at[slot]);
  }
};

// n numbers of a weight, which all tokens read.
template <int n, class T>
__device__ __forceinline__ Floats<n> load_weight(const T* from, bool in_range = true) {
  Floats<n> all = {};
  if constexpr (n == 1) {
    if (in_range) all.at[0] = to_float(*from);
  } else {
    const Pack<T> pack = pack_of<T>(load_bits(from, in_range));
#pragma unroll
    for (int i = 0; i < n; ++i) all.at[i] = to_float(pack.at[i]);
  }
  return all;
}

// What forward and backward know of the heads.
template <class T>
struct HeadsOfTokens {
  const T *x, *query, *key;
  int64_t N, H, normed, packed, D;

  template <class Kernel>
  explicit HeadsOfTokens(const Kernel& k)
      : x(k.x.template as<T>()), query(k.query.template as<T>()), key(k.key.template as<T>()) {
    const HeadNormExtents e(k.x, k.heads);
    N = e.N, H = e.H, normed = e.normed, packed = e.packed, D = e.D;
  }
  __device__ __forceinline__ const T* weight_of(int64_t h) const { return h < H ? query : key; }
};

template <class T>
struct HeadForward : HeadsOfTokens<T> {
  T* y;
  float *r, eps;
  explicit HeadForward(const HeadNormForward& k)
      : HeadsOfTokens<T>(k), y(k.y.as<T>()), r(k.r.as<float>()), eps(static_cast<float>(k.eps)) {}
};

template <class Team, class T>
__global__ void __launch_bounds__(head_threads) head_forward(HeadForward<T> k) {
  const int64_t number = int64_t{blockIdx.x} * Team::teams + Team::number();
  const Place head(number, k.packed);  // row: the token; column: the head
  const bool in_range = head.row < k.N, normed = head.column < k.normed;
  const int64_t first = number * k.D;
  const HeadNumbers<Team, T> x(k.x + (in_range ? first : 0), k.D, in_range);
  float squares = 0;
#pragma unroll
  for (int s = 0; s < Team::slots; ++s) {
    const Floats<Team::width> at = x.floats(s);
#pragma unroll
    for (int i = 0; i < Team::width; ++i) squares += at.at[i] * at.at[i];
  }
  const float r = 1 / sqrtf(Team::sum(squares) / static_cast<float>(k.D) + k.eps);
  if (!in_range) return;
  if (normed && Team::column(0) == 0) k.r[head.row * k.normed + head.column] = r;
#pragma unroll
  for (int s = 0; s < Team::slots; ++s) {
    const int c = Team::column(s);
    if (c >= k.D) continue;
    if (!normed) {
      store_raw<Team::width>(k.y + first + c, x.at[s]);
      continue;
    }
    Floats<Team::width> y = x.floats(s);
    const auto weight = load_weight<Team::width>(k.weight_of(head.column) + c);
#pragma unroll
    for (int i = 0; i < Team::width; ++i) y.at[i] *= r * weight.at[i];
    store<Team::width>(k.y + first + c, y);
  }
}

template <class T>
struct HeadBackward : HeadsOfTokens<T> {
  Sink<T> dx;  // null if not needed
  const T* dy;
  const float* r;
  float* partials;  // of each group dquery and then dkey; null if not needed
  int64_t tokens;   // of a group

  explicit HeadBackward(const HeadNormBackward& k)
      : HeadsOfTokens<T>(k),
        dx(k.dx),
        dy(k.dy.as<T>()),
        r(k.r.as<float>()),
        partials(k.dquery || k.dkey ? k.workspace.as<float>() : nullptr),
        tokens(HeadNormGroups(this->N).tokens) {}
};

// A lane's sums of dquery and dkey over the heads that its team takes.
template <class Team>
struct HeadSums {
  Floats<Team::width> query[Team::slots] = {}, key[Team::slots] = {};

  __device__ __forceinline__ void add(bool is_query, int slot, int i, float x) {
    query[slot].at[i] += is_query ? x : 0;
    key[slot].at[i] += is_query ? 0 : x;
  }
  // The sums over the block, in the order of its warps.
  __device__ __forceinline__ void write(float* partials, int64_t D) const {
    SPOOL_SHARED_2D(float, side, head_warps, 2 * longest_head);
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
#pragma unroll
    for (int s = 0; s < Team::slots; ++s) {
#pragma unroll
      for (int i = 0; i < Team::width; ++i) {
        const float q = Team::sum_of_teams(query[s].at[i]), k = Team::sum_of_teams(key[s].at[i]);
        const int c = Team::column(s) + i;
        if (lane_of_warp() >= Team::lanes || c >= D) continue;
        side[warp][c] = q;
        side[warp][longest_head + c] = k;
      }
    }
    __syncthreads();
    for (int64_t c = threadIdx.x; c < 2 * D; c += head_threads) {
      const int64_t from = c < D ? c : longest_head + c - D;
      float total = 0;
#pragma unroll
      for (const auto& of_warp : side) total += of_warp[from];
      partials[c] = total;
    }
  }
};

// Backward of one head: number `number` of all, if it is `in_range`.
template <class Team, class T>
__device__ __forceinline__ void differentiate_head(const HeadBackward<T>& k, int64_t number,
                                                   bool in_range, HeadSums<Team>& sums) {
  constexpr int width = Team::width, slots = Team::slots;
  const Place head(in_range ? number : 0, k.packed);
  const bool normed = head.column < k.normed;
  const int64_t first = head.row * k.packed * k.D + head.column * k.D;
  const HeadNumbers<Team, T> x(k.x + first, k.D, in_range && normed),
      dy(k.dy + first, k.D, in_range);
  const HeadNumbers<Team, T> before(k.dx.data ? k.dx.data + first : k.x, k.D,
                                    in_range && k.dx.accumulate);
  const float r = normed && in_range ? __ldg(k.r + head.row * k.normed + head.column) : 0;
  const T* const weight = k.weight_of(head.column);
  Floats<width> g[slots], h[slots];
  float products = 0;
#pragma unroll
  for (int s = 0; s < slots; ++s) {
    g[s] = dy.floats(s);
    h[s] = x.floats(s);
    const int c = Team::column(s);
    const Floats<width> factor = load_weight<width>(weight + c, c < k.D);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      h[s].at[i] *= r;
      sums.add(head.column < k.H, s, i, g[s].at[i] * h[s].at[i]);
      if (normed) g[s].at[i] *= factor.at[i];
      products += g[s].at[i] * h[s].at[i];
    }
  }
  const float share = Team::sum(products) / static_cast<float>(k.D);
  if (!in_range || !k.dx.data) return;
#pragma unroll
  for (int s = 0; s < slots; ++s) {
    const int c = Team::column(s);
    if (c >= k.D) continue;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (normed) g[s].at[i] = r * (g[s].at[i] - h[s].at[i] * share);
    }
    k.dx.put(first + c, g[s], before.at[s]);
  }
}

// A block has the heads of a group of tokens.
template <class Team, class T>
__global__ void __launch_bounds__(head_threads) head_backward(HeadBackward<T> k) {
  const int64_t begin = blockIdx.x * k.tokens * k.packed;
  const int64_t end = min(begin + k.tokens * k.packed, k.N * k.packed);
  HeadSums<Team> sums;
  for (int64_t first = begin; first < end; first += Team::teams) {  // the same for all lanes
    const int64_t number = first + Team::number();
    differentiate_head(k, number, number < end, sums);
  }
  if (k.partials) sums.write(k.partials + blockIdx.x * 2 * k.D, k.D);
}

// Calls f with the team for heads of D numbers, which `wide` ones can be moved as packs.
template <class T, class F>
void dispatch_team(int64_t D, bool wide, const F& f) {
  constexpr int size = Pack<T>::size;
  check(D <= longest_head, "head_norm on cuda: a head size of ", D, " is beyond the maximum of ",
        longest_head);
  if (!wide) return f(HeadTeam<1, warp_lanes, longest_head / warp_lanes>{});
  if (D <= 8 * size) return f(HeadTeam<size, 8, 1>{});
  if (D <= 16 * size) return f(HeadTeam<size, 16, 1>{});
  f(HeadTeam<size, warp_lanes, (longest_head / warp_lanes + size - 1) / size>{});
}

template <class T>
bool moves_as_packs(int64_t D, std::initializer_list<View> all) {
  for (const View& v : all) {
    if (!packs<T>(v.data(), D)) return false;
  }
  return true;
}

template <class T>
void forward(const HeadNormForward& k, CudaStream& stream) {
  const HeadForward<T> all(k);
  const bool wide = moves_as_packs<T>(all.D, {k.x, k.y, k.query, k.key});
  dispatch_team<T>(all.D, wide, [&](auto team) {
    using Team = decltype(team);
    const int64_t blocks = ceil_div<int64_t>(all.N * all.packed, Team::teams);
    launch_kernel(stream, head_forward<Team, T>,
                  {.grid = dim3(unsigned(blocks)), .block = dim3(head_threads)}, all);
  });
}

template <class T>
void backward(const HeadNormBackward& k, CudaStream& stream) {
  const HeadBackward<T> all(k);
  const int64_t groups = HeadNormGroups(all.N).count;
  const bool wide = moves_as_packs<T>(all.D, {k.x, k.dy, k.dx.view, k.query, k.key});
  if (groups > 0) {
    dispatch_team<T>(all.D, wide, [&](auto team) {
      launch_kernel(stream, head_backward<decltype(team), T>,
                    {.grid = dim3(unsigned(groups)), .block = dim3(head_threads)}, all);
    });
  }
  if (k.dquery) add_up<T>(stream, {k.dquery}, all.partials, 2 * all.D, groups);
  if (k.dkey) add_up<T>(stream, {k.dkey}, all.partials + all.D, 2 * all.D, groups);
}

}  // namespace
}  // namespace cuda

void run(const HeadNormForward& k, CudaStream& stream) {
  if (k.x.numel() == 0) return;
  cuda::dispatch(k.x.dtype(), [&](auto scalar) { cuda::forward<decltype(scalar)>(k, stream); });
}

void run(const HeadNormBackward& k, CudaStream& stream) {
  if (!k.dx && !k.dquery && !k.dkey) return;
  cuda::dispatch(k.x.dtype(), [&](auto scalar) { cuda::backward<decltype(scalar)>(k, stream); });
}

}  // namespace spool
