// A target that is neither in the vocabulary nor ignored is an error on the cpu; here the loss and
// the gradient of its row are NaN.

#include "spool/kernels/cross_entropy.h"

#include "spool/kernels/cuda/cross_entropy.cuh"

namespace spool {
namespace cuda {
namespace {

template <class T, bool capped>
__global__ void __launch_bounds__(row_block, 2) cross_entropy_kernel(LogitsRows<T> all) {
  SPOOL_SHARED_DYNAMIC(uint4, kept);
  const int64_t n = blockIdx.x;
  T* const logits = all.logits + n * all.columns;
  const LogitsRow<T, capped> row{all, PackedRow<T>(logits, all.columns), kept};
  const int y = all.targets[n];
  const bool ignored = y == all.options.ignore_index;
  const bool known = y >= 0 && y < all.vocabulary;
  const float g = all.gradient_factor(n);
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
    if (first && all.losses) {
      all.losses[n] = loss_of(sums, target, all.vocabulary, all.options);
    }
    if (differentiate) return row.differentiate(sums, y, g);
  }
  if (all.gradient) row.fill(0);
}

template <class T>
void cross_entropy(const CrossEntropy& k, CudaStream& stream) {
  const auto vocabulary = static_cast<int>(k.vocabulary());
  const int64_t kept = k.kept_packs(std::get<CudaArchitecture>(stream.architecture()));
  const LogitsRows<T> all{.logits = k.logits.as<T>(),
                          .targets = k.targets.as<int32_t>(),
                          .losses = k.losses.as<float>(),
                          .scale = k.scale.as<float>(),
                          .upstream = k.upstream.as<float>(),
                          .columns = columns_of(k.name, k.logits),
                          .used = vocabulary,
                          .vocabulary = vocabulary,
                          .kept = static_cast<int>(kept),
                          .gradient = k.gradient,
                          .upstream_each = k.upstream.numel() > 1,
                          .upstream_known = k.upstream_known,
                          .options = k.options};
  if (k.targets.numel() == 0) return;
  const auto kernel =
      k.options.soft_cap > 0 ? cross_entropy_kernel<T, true> : cross_entropy_kernel<T, false>;
  launch_kernel(stream, kernel, block_a_row(k.logits, kept), all);
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
