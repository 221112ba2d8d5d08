#include "spool/kernels/cross_entropy.h"

#include <algorithm>

#include "spool/kernels/arguments.h"

namespace spool {

void CrossEntropy::check_arguments() const {
  const Arguments all(name);
  all.present("logits", logits, floating);
  const int64_t N = logits.shape().rows();
  const DType sums = accumulator(logits.dtype());
  all.elements("targets", targets, DType::i32, N);
  if (losses) all.elements("losses", losses, sums, N);
  if (scale) all.elements("scale", scale, sums, 1);
  if (upstream && upstream.numel() != 1) all.elements("upstream", upstream, sums, N);
  if (upstream) all.present("upstream", upstream, sums);
  (void)vocabulary();
  all.apart("losses", losses,
            {{"logits", logits}, {"targets", targets}, {"scale", scale}, {"upstream", upstream}});
  if (!gradient) return;
  all.apart("logits", logits, {{"targets", targets}, {"scale", scale}, {"upstream", upstream}});
}

namespace {

constexpr int64_t pack_bytes = 16;

// Dynamic shared memory that a block may have, in bytes, beside 1 KiB of its own.
int64_t shared_bytes(const CudaArchitecture& a) {
  const bool little = a.major >= 12 || (a.major == 8 && (a.minor == 6 || a.minor == 9));
  const int64_t kibibytes = little ? 99 : a.major == 8 ? 163 : 227;
  return (kibibytes - 1) * 1024;
}

}  // namespace

int64_t packs_of_row(const View& logits) {
  const auto size = pack_bytes / static_cast<int64_t>(size_of(logits.dtype()));
  return ceil_div(logits.shape().row() + size - 1, size);
}

int64_t CrossEntropy::kept_packs(const CudaArchitecture& architecture) const {
  return gradient ? std::min(packs_of_row(logits), shared_bytes(architecture) / pack_bytes) : 0;
}

Cost CrossEntropy::cost(const CudaArchitecture& architecture) const {
  if (!gradient) return cost();
  const auto all = static_cast<double>(packs_of_row(logits)),
             kept = static_cast<double>(kept_packs(architecture));
  return cost_of(3 - kept / all);
}

void CountTargets::check_arguments() const {
  const Arguments all(name);
  all.elements("scale", scale, Types(DType::f32) | DType::f64, 1);
  all.present("targets", targets, DType::i32);
  all.apart("scale", scale, {{"targets", targets}});
}

}  // namespace spool
