#include "spool/kernels/cross_entropy.h"

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
  check(options.vocabulary >= 0, name, ": a vocabulary of ", options.vocabulary,
        "; use 0 for all columns of the logits, or the number of those that are no padding");
  (void)vocabulary();
  all.apart("losses", losses,
            {{"logits", logits}, {"targets", targets}, {"scale", scale}, {"upstream", upstream}});
  if (!gradient) return;
  all.apart("logits", logits, {{"targets", targets}, {"scale", scale}, {"upstream", upstream}});
}

void CountTargets::check_arguments() const {
  const Arguments all(name);
  all.elements("scale", scale, Types(DType::f32) | DType::f64, 1);
  all.present("targets", targets, DType::i32);
  all.apart("scale", scale, {{"targets", targets}});
}

}  // namespace spool
