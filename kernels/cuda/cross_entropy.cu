// A block computes one row.  The part that fits in shared memory is read once: each thread keeps
// its packs, sums them up under a running maximum, and later turns them into the gradient.
//
// A target that is neither in the vocabulary nor ignored is an error on the cpu; here the loss and
// the gradient of its row are NaN.

#include "spool/kernels/cross_entropy.h"

#include <limits>

#include "spool/kernels/cuda/device.cuh"
#include "spool/kernels/functions.h"

namespace spool {
namespace cuda {
namespace {

constexpr int row_block = 512;
constexpr int in_flight = 4;  // packs that a thread loads at a time, to hide the latency of memory
constexpr float lowest_logit = std::numeric_limits<float>::lowest();

// The elements of a row as packs aligned to 16 bytes, wherever the row begins; the first and the
// last pack may be partial.
template <class T>
struct PackedRow {
  static constexpr int size = Pack<T>::size;
  int begin, end;  // the row, in elements from the first of pack 0
  T* origin;

  __device__ PackedRow(T* row, int columns)
      : begin(static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T))),
        end(begin + columns),
        origin(row - begin) {}

  __device__ static int packs(int elements) { return ceil_div(elements, size); }
  __device__ bool whole(int p) const { return p * size >= begin && (p + 1) * size <= end; }

  // Element by element, with zeros outside of the row.
  __device__ Pack<T> load_cut(int p) const {
    Pack<T> pack;
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const int i = p * size + k;
      pack.at[k] = i >= begin && i < end ? origin[i] : from_float<T>(0);
    }
    return pack;
  }
  __device__ void store(int p, const Pack<T>& pack) const {
    if (whole(p)) return store_pack(origin + int64_t{p} * size, pack);
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const int i = p * size + k;
      if (i >= begin && i < end) origin[i] = pack.at[k];
    }
  }
};

// Largest z, sum of exp(z - largest), and sum of z.
struct RowSums {
  float largest, exponentials, total;
  __device__ static RowSums none() { return {lowest_logit, 0, 0}; }
};

// Merges the sums of the threads of a block; every thread gets the result.
__device__ RowSums merge(RowSums mine) {
  SPOOL_SHARED(RowSums, of_warps, warp_lanes);
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
  const auto merge_warp = [](const RowSums& s) {
    const float largest = warp_max(s.largest);
    return RowSums{largest, warp_sum(s.exponentials * math::fast_exp(s.largest - largest)),
                   warp_sum(s.total)};
  };
  mine = merge_warp(mine);
  if (lane == 0) of_warps[warp] = mine;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / warp_lanes;
  return merge_warp(lane < warps ? of_warps[lane] : RowSums::none());
}

template <class T>
struct LogitsRows {
  T* logits;
  const int32_t* targets;
  float* losses;
  const float *scale, *upstream;
  int columns, vocabulary;
  int kept;  // packs of a row that shared memory has room for
  bool gradient, upstream_each;
  float upstream_known;
  CrossEntropyOptions options;
};

template <class T, bool capped>
struct LogitsRow {
  static constexpr int size = Pack<T>::size;
  const LogitsRows<T>& all;
  PackedRow<T> row;
  uint4* kept;

  __device__ float squashed(float x) const { return tanhf(x / all.options.soft_cap); }
  __device__ float z(float x) const { return capped ? all.options.soft_cap * squashed(x) : x; }
  __device__ int used() const { return row.begin + all.vocabulary; }
  // Whether all elements of pack p are of the vocabulary.
  __device__ bool inside(int p) const { return p * size >= row.begin && (p + 1) * size <= used(); }

  // Packs p, p + step, ... of those inside, `in_flight` of them at a time.
  __device__ void load_batch(uint4 (&bits)[in_flight], int p, int step) const {
#pragma unroll
    for (int k = 0; k < in_flight; ++k) {
      const int q = p + k * step;
      bits[k] = load_bits_written(row.origin + int64_t{q} * size, inside(q));
    }
  }

  template <bool cut>
  __device__ bool counts(int i) const {
    return !cut || (i >= row.begin && i < used());
  }
  // Subtracts before it multiplies by the factor of the exponential's base: logits may be near the
  // largest number.
  template <bool cut>
  __device__ void add(RowSums& sums, const Pack<T>& pack, int p) const {
    float each[size], largest = lowest_logit;
#pragma unroll
    for (int k = 0; k < size; ++k) {
      each[k] = counts<cut>(p * size + k) ? z(to_float(pack.at[k])) : -INFINITY;
      largest = fmaxf(largest, each[k]);
    }
    if (all.options.label_smoothing != 0) {
#pragma unroll
      for (int k = 0; k < size; ++k) sums.total += counts<cut>(p * size + k) ? each[k] : 0;
    }
    const float next = fmaxf(sums.largest, largest);
    float sum = sums.exponentials * math::fast_exp(sums.largest - next);
#pragma unroll
    for (int k = 0; k < size; ++k) sum += math::fast_exp(each[k] - next);
    sums.exponentials = sum;
    sums.largest = next;
  }

  __device__ RowSums sum_up() const {
    RowSums sums = RowSums::none();
    const int threads = static_cast<int>(blockDim.x), packs = row.packs(used());
    for (int p = static_cast<int>(threadIdx.x); p < packs; p += in_flight * threads) {
      uint4 bits[in_flight];
      load_batch(bits, p, threads);
#pragma unroll
      for (int k = 0; k < in_flight; ++k) {
        const int q = p + k * threads;
        if (q >= packs) break;
        if (inside(q)) {
          add<false>(sums, pack_of<T>(bits[k]), q);
        } else {
          const Pack<T> cut = row.load_cut(q);
          bits[k] = bits_of(cut);
          add<true>(sums, cut, q);
        }
        if (q < all.kept) kept[q] = bits[k];
      }
    }
    return merge(sums);
  }

  __device__ float loss(const RowSums& sums, float target) const {
    const float e = all.options.label_smoothing;
    const float log_sum = logf(sums.exponentials), lse = sums.largest + log_sum;
    // lse - z[y], without the digits that lse loses to the maximum
    const float to_target = log_sum - (target - sums.largest);
    const float to_mean = e != 0 ? lse - sums.total / static_cast<float>(all.vocabulary) : 0;
    return (1 - e) * to_target + e * to_mean + all.options.z_loss * lse * lse;
  }

  __device__ void differentiate(const RowSums& sums, int y, float g) const {
    const float e = all.options.label_smoothing;
    const float lse = sums.largest + logf(sums.exponentials);
    const Slope slope{.largest = sums.largest,
                      .factor = g * (1 + 2 * all.options.z_loss * lse) / sums.exponentials,
                      .spread = e / static_cast<float>(all.vocabulary) * g,
                      .one = (1 - e) * g,
                      .target = row.begin + y};
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int read = row.packs(used()), last_kept = min(all.kept, read);
    for (int p = thread; p < last_kept; p += threads) write(slope, kept[p], p);
    for (int p = last_kept + thread; p < read; p += in_flight * threads) {
      uint4 bits[in_flight];
      load_batch(bits, p, threads);
#pragma unroll
      for (int k = 0; k < in_flight; ++k) {
        const int q = p + k * threads;
        if (q >= read) break;
        write(slope, inside(q) ? bits[k] : bits_of(row.load_cut(q)), q);
      }
    }
    fill_from(read, 0);
  }

  // dz[i] = exp(z[i] - largest) factor - spread, less `one` for the target.
  struct Slope {
    float largest, factor, spread, one;
    int target;  // in elements from the first of pack 0
  };
  __device__ void write(const Slope& slope, const uint4& bits, int p) const {
    const bool plain = inside(p) && static_cast<unsigned>(slope.target - p * size) >= size;
    if (plain) {
      store_pack(row.origin + int64_t{p} * size, gradient<true>(slope, pack_of<T>(bits), p));
    } else {
      row.store(p, gradient<false>(slope, pack_of<T>(bits), p));
    }
  }
  template <bool plain>
  __device__ Pack<T> gradient(const Slope& slope, Pack<T> pack, int p) const {
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const int i = p * size + k;
      const float t = capped ? squashed(to_float(pack.at[k])) : 0;
      const float now = capped ? all.options.soft_cap * t : to_float(pack.at[k]);
      float dz = fmaf(math::fast_exp(now - slope.largest), slope.factor, -slope.spread);
      if (!plain) dz = i < used() ? dz - (i == slope.target ? slope.one : 0) : 0;
      pack.at[k] = from_float<T>(dz * (1 - t * t));
    }
    return pack;
  }

  __device__ void fill(float value) const { fill_from(0, value); }
  __device__ void fill_from(int begin, float value) const {
    Pack<T> pack;
#pragma unroll
    for (int k = 0; k < size; ++k) pack.at[k] = from_float<T>(value);
    const int packs = row.packs(row.end), threads = static_cast<int>(blockDim.x);
    for (int p = begin + static_cast<int>(threadIdx.x); p < packs; p += threads) row.store(p, pack);
  }
};

template <class T, bool capped>
__global__ void __launch_bounds__(row_block, 2) cross_entropy_kernel(LogitsRows<T> all) {
  SPOOL_SHARED_DYNAMIC(uint4, kept);
  const int64_t n = blockIdx.x;
  T* const logits = all.logits + n * all.columns;
  const LogitsRow<T, capped> row{all, PackedRow<T>(logits, all.columns), kept};
  const int y = all.targets[n];
  const bool ignored = y == all.options.ignore_index;
  const bool known = y >= 0 && y < all.vocabulary;
  const float upstream = all.upstream ? all.upstream[all.upstream_each ? n : 0] : 1;
  const float g = (all.scale ? *all.scale : 1) * (upstream - all.upstream_known);
  const bool first = threadIdx.x == 0;
  if (ignored || !known) {
    const float value = ignored ? 0 : NAN;
    if (first && all.losses) all.losses[n] = value;
    if (all.gradient) row.fill(value);
    return;
  }
  const bool differentiate = all.gradient && g != 0;
  if (all.losses || differentiate) {
    const float target = first ? row.z(to_float(logits[y])) : 0;
    const RowSums sums = row.sum_up();
    if (first && all.losses) all.losses[n] = row.loss(sums, target);
    if (differentiate) return row.differentiate(sums, y, g);
  }
  if (all.gradient) row.fill(0);
}

template <class T>
void cross_entropy(const CrossEntropy& k, CudaStream& stream) {
  const int64_t N = k.targets.numel(), columns = k.logits.shape().row();
  check(columns <= int64_t{1} << 30, "cross_entropy on cuda: a row of ", columns,
        " logits is beyond the maximum of 2^30");
  const int64_t kept = k.kept_packs(std::get<CudaArchitecture>(stream.architecture()));
  const LogitsRows<T> all{.logits = k.logits.as<T>(),
                          .targets = k.targets.as<int32_t>(),
                          .losses = k.losses.as<float>(),
                          .scale = k.scale.as<float>(),
                          .upstream = k.upstream.as<float>(),
                          .columns = static_cast<int>(columns),
                          .vocabulary = static_cast<int>(k.vocabulary()),
                          .kept = static_cast<int>(kept),
                          .gradient = k.gradient,
                          .upstream_each = k.upstream.numel() > 1,
                          .upstream_known = k.upstream_known,
                          .options = k.options};
  if (N == 0) return;
  const int64_t warps = ceil_div<int64_t>(k.packs(), int64_t{in_flight} * warp_lanes);
  const auto threads = unsigned(std::min<int64_t>(warps * warp_lanes, row_block));
  const auto kernel =
      k.options.soft_cap > 0 ? cross_entropy_kernel<T, true> : cross_entropy_kernel<T, false>;
  launch_kernel(stream, kernel,
                {.grid = dim3(unsigned(N)),
                 .block = dim3(threads),
                 .shared = static_cast<size_t>(kept) * sizeof(Pack<T>)},
                all);
}

constexpr int count_block = 1024;

template <class T>
__global__ void __launch_bounds__(count_block)
    count_targets(T* scale, const int32_t* targets, int64_t N, int32_t ignored) {
  SPOOL_SHARED(int64_t, scratch, warp_lanes);
  int64_t count = 0;
#pragma unroll 8
  for (int64_t n = threadIdx.x; n < N; n += count_block) count += targets[n] != ignored;
  count = block_sum(count, scratch);
  if (threadIdx.x == 0) *scale = static_cast<T>(1.0 / static_cast<double>(count > 1 ? count : 1));
}

}  // namespace
}  // namespace cuda

void run(const CrossEntropy& k, CudaStream& stream) {
  cuda::dispatch(k.logits.dtype(), [&](auto x) { cuda::cross_entropy<decltype(x)>(k, stream); });
}

void run(const CountTargets& k, CudaStream& stream) {
  const auto count = [&](auto x) {
    using T = decltype(x);
    cuda::launch_kernel(stream, cuda::count_targets<T>,
                        {.grid = dim3(1), .block = dim3(cuda::count_block)}, k.scale.as<T>(),
                        k.targets.as<int32_t>(), k.targets.numel(), k.ignore_index);
  };
  if (k.scale.dtype() == DType::f64) return count(double{});
  check(k.scale.dtype() == DType::f32, "count_targets on cuda: scale must be f32 or f64, not ",
        name(k.scale.dtype()));
  count(float{});
}

}  // namespace spool
