#include "spool/kernels/cross_entropy_part.h"

#include "spool/kernels/arguments.h"

namespace spool {

PartOfLogits::PartOfLogits(const char* kernel, const View& logits, const VocabularyPart& part,
                           const CrossEntropyOptions& options)
    : first(part.first), columns(logits.shape().row()) {
  part.check_fits(kernel, "columns", columns);
  vocabulary = options.vocabulary_of(kernel, part.whole_of(columns));
}

void CrossEntropyStatistics::check_arguments() const {
  const Arguments all(name);
  all.present("logits", logits, floating);
  const int64_t N = logits.shape().rows();
  all.elements("targets", targets, DType::i32, N);
  all.rows("statistics", statistics, accumulator(logits.dtype()), N, numbers(options));
  (void)columns();
  all.apart("statistics", statistics, {{"logits", logits}, {"targets", targets}});
}

void CrossEntropyJoined::check_arguments() const {
  const Arguments all(name);
  all.present("logits", logits, floating);
  const int64_t N = logits.shape().rows(), numbers = CrossEntropyStatistics::numbers(options);
  const DType sums = accumulator(logits.dtype());
  all.elements("targets", targets, DType::i32, N);
  all.present("statistics", statistics, sums);
  const Shape& found = statistics.shape();
  check(found.rank() == 3 && found[0] > 0 && found[1] == N && found[2] == numbers, name,
        ": statistics is ", statistics.spec(), ", and ", spool::name(sums), " (parts, ", N, ", ",
        numbers, ") would fit the other arguments");
  if (losses) all.elements("losses", losses, sums, N);
  if (scale) all.elements("scale", scale, sums, 1);
  if (upstream && upstream.numel() != 1) all.elements("upstream", upstream, sums, N);
  if (upstream) all.present("upstream", upstream, sums);
  (void)columns();
  all.apart("losses", losses,
            {{"logits", logits},
             {"statistics", statistics},
             {"targets", targets},
             {"scale", scale},
             {"upstream", upstream}});
  if (!gradient) return;
  all.apart(
      "logits", logits,
      {{"statistics", statistics}, {"targets", targets}, {"scale", scale}, {"upstream", upstream}});
}

}  // namespace spool
