// A block computes the part of a row, once for its statistics and once for its gradient; a thread
// the loss of a row.
//
// A target that is neither in the vocabulary nor ignored is an error on the cpu; here the loss and
// the gradient of its row are NaN.

#include "spool/kernels/cross_entropy_part.h"

#include "spool/kernels/cuda/cross_entropy.cuh"

namespace spool {
namespace cuda {
namespace {

constexpr int loss_block = 256;

// Rows of a part of the logits, and the statistics of this part, or of all.
template <class T>
struct PartOfRows {
  LogitsRows<T> rows;
  float* statistics;  // (parts, N, numbers)
  int numbers;
  int64_t N, first;
  int parts = 1;

  enum class Target { ignored, wrong, known };
  __device__ Target target_of(int64_t n) const {
    const int y = rows.targets[n];
    if (y == rows.options.ignore_index) return Target::ignored;
    return y >= 0 && y < rows.vocabulary ? Target::known : Target::wrong;
  }
  // The part's column of a row's target, or -1.
  __device__ int own_column(int64_t n) const {
    const int64_t y = rows.targets[n] - first;
    return y >= 0 && y < rows.used ? static_cast<int>(y) : -1;
  }
};

template <class T, bool capped>
__global__ void __launch_bounds__(row_block, 2) sum_up_part(PartOfRows<T> k) {
  const int64_t n = blockIdx.x;
  T* const logits = k.rows.logits + n * k.rows.columns;
  const LogitsRow<T, capped> row{k.rows, PackedRow<T>(logits, k.rows.columns), nullptr};
  const bool known = k.target_of(n) == PartOfRows<T>::Target::known, first = threadIdx.x == 0;
  const int y = k.own_column(n);
  const float target = first && known && y >= 0 ? row.z(to_float(logits[y])) : 0;
  const RowSums sums = known ? row.sum_up() : RowSums::none();
  if (!first) return;
  float* const to = k.statistics + n * k.numbers;
  to[0] = sums.largest;
  to[1] = sums.exponentials;
  to[2] = target;
  if (k.numbers > 3) to[3] = sums.total;
}

// The sums of a whole row, and z of its target, from the statistics of all parts.
struct JoinedRow {
  RowSums sums = RowSums::none();
  float target = 0;

  template <class T>
  __device__ JoinedRow(const PartOfRows<T>& k, int64_t n) {
    const float* const all = k.statistics + n * k.numbers;
    const int64_t step = k.N * k.numbers;
    for (int p = 0; p < k.parts; ++p) sums.largest = fmaxf(sums.largest, __ldg(all + p * step));
    for (int p = 0; p < k.parts; ++p) {
      const float* const of_part = all + p * step;
      sums.exponentials += __ldg(of_part + 1) * expf(__ldg(of_part) - sums.largest);
      target += __ldg(of_part + 2);
      if (k.numbers > 3) sums.total += __ldg(of_part + 3);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(loss_block) join_losses(PartOfRows<T> k) {
  using Target = typename PartOfRows<T>::Target;
  const int64_t n = int64_t{blockIdx.x} * loss_block + threadIdx.x;
  if (n >= k.N) return;
  const Target of_row = k.target_of(n);
  float loss = of_row == Target::wrong ? NAN : 0;
  if (of_row == Target::known) {
    const JoinedRow all(k, n);
    loss = loss_of(all.sums, all.target, k.rows.vocabulary, k.rows.options);
  }
  k.rows.losses[n] = loss;
}

template <class T, bool capped>
__global__ void __launch_bounds__(row_block, 2) differentiate_part(PartOfRows<T> k) {
  using Target = typename PartOfRows<T>::Target;
  const int64_t n = blockIdx.x;
  T* const logits = k.rows.logits + n * k.rows.columns;
  const LogitsRow<T, capped> row{k.rows, PackedRow<T>(logits, k.rows.columns), nullptr};
  const Target of_row = k.target_of(n);
  const float g = k.rows.gradient_factor(n);
  if (of_row == Target::wrong) return row.fill(NAN);
  if (of_row == Target::ignored || g == 0) return row.fill(0);
  row.differentiate(JoinedRow(k, n).sums, k.own_column(n), g);
}

template <class T, class Kernel>
PartOfRows<T> part_of_rows(const Kernel& k) {
  const PartOfLogits part = k.columns();
  return {.rows = {.logits = k.logits.template as<T>(),
                   .targets = k.targets.template as<int32_t>(),
                   .columns = columns_of(k.name, k.logits),
                   .used = static_cast<int>(part.used()),
                   .vocabulary = static_cast<int>(part.vocabulary),
                   .options = k.options},
          .statistics = k.statistics.template as<float>(),
          .numbers = static_cast<int>(k.statistics.shape().row()),
          .N = k.targets.numel(),
          .first = part.first};
}

template <class T>
void statistics(const CrossEntropyStatistics& k, CudaStream& stream) {
  const auto kernel = k.options.soft_cap > 0 ? sum_up_part<T, true> : sum_up_part<T, false>;
  launch_kernel(stream, kernel, block_a_row(k.logits, /*kept=*/0), part_of_rows<T>(k));
}

template <class T>
void joined(const CrossEntropyJoined& k, CudaStream& stream) {
  PartOfRows<T> part = part_of_rows<T>(k);
  part.parts = static_cast<int>(k.statistics.shape()[0]);
  part.rows.losses = k.losses.as<float>();
  part.rows.scale = k.scale.as<float>();
  part.rows.upstream = k.upstream.as<float>();
  part.rows.upstream_each = k.upstream.numel() > 1;
  part.rows.upstream_known = k.upstream_known;
  if (k.losses) {
    const auto blocks = unsigned(ceil_div<int64_t>(part.N, loss_block));
    launch_kernel(stream, join_losses<T>, {.grid = dim3(blocks), .block = dim3(loss_block)}, part);
  }
  if (!k.gradient) return;
  const auto kernel =
      k.options.soft_cap > 0 ? differentiate_part<T, true> : differentiate_part<T, false>;
  launch_kernel(stream, kernel, block_a_row(k.logits, /*kept=*/0), part);
}

}  // namespace
}  // namespace cuda

void run(const CrossEntropyStatistics& k, CudaStream& stream) {
  if (k.targets.numel() == 0) return;
  cuda::dispatch(k.logits.dtype(), [&](auto x) { cuda::statistics<decltype(x)>(k, stream); });
}

void run(const CrossEntropyJoined& k, CudaStream& stream) {
  if (k.targets.numel() == 0) return;
  cuda::dispatch(k.logits.dtype(), [&](auto x) { cuda::joined<decltype(x)>(k, stream); });
}

}  // namespace spool
