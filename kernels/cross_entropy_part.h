#pragma once

// Cross entropy (cross_entropy.h) of logits whose columns are in parts.  Each part leaves a few
// numbers a row; those of all parts together give the losses, and each part its gradient.
//
// CrossEntropyStatistics, over the columns v of the part that count, those before V:
//   statistics[n] = max_v z[n,v]   sum_v exp(z[n,v] - max)   z[n,y], or 0 if y is another part's
// and with label smoothing also sum_v z[n,v].  A part without columns before V, and a row whose
// target is ignored, leave the lowest number and zeros.
//
// CrossEntropyJoined reads the statistics of all parts, and is CrossEntropy with these in place of
// the sums over the row: they are added up in the order of the parts.
//
// A target outside [0, V) is an error on the cpu; on cuda the loss and gradient of its row are NaN.
// What is written shares no memory with other arguments.

#include <algorithm>

#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/vocabulary_part.h"

namespace spool {

// The columns of a part of the logits, and those that count, of the vocabulary V.
struct PartOfLogits {
  int64_t first = 0, columns = 0, vocabulary = 0;

  PartOfLogits(const char* kernel, const View& logits, const VocabularyPart&,
               const CrossEntropyOptions&);
  int64_t used() const { return std::clamp<int64_t>(vocabulary - first, 0, columns); }
};

struct CrossEntropyStatistics {
  static constexpr const char* name = "cross_entropy_statistics";
  View statistics;  // (N, numbers(options)), f32 (f64 for f64 logits)
  View logits;      // (N, columns of the part)
  View targets;     // i32 (N), each in [0, V) or ignore_index
  VocabularyPart part = {};
  CrossEntropyOptions options = {};

  static int64_t numbers(const CrossEntropyOptions& o) { return o.label_smoothing != 0 ? 4 : 3; }
  void check_arguments() const;
  PartOfLogits columns() const { return {name, logits, part, options}; }
  Cost cost() const {
    return {20.0 * static_cast<double>(logits.numel()), bytes(statistics, logits),
            accumulator(logits.dtype())};
  }
};

struct CrossEntropyJoined {
  static constexpr const char* name = "cross_entropy_joined";
  View logits;       // (N, columns of the part); becomes its own gradient if `gradient`
  View statistics;   // (parts, N, numbers(options)), in the order of the parts
  View targets;      // as above
  View losses = {};  // (N), type of statistics; absent: not computed
  bool gradient = false;
  View scale = {};           // (1), type of losses; absent: 1
  View upstream = {};        // (1) or (N), type of losses; absent: 1
  float upstream_known = 0;  // the part of it that earlier gradients include
  VocabularyPart part = {};
  CrossEntropyOptions options = {};

  void check_arguments() const;
  PartOfLogits columns() const { return {name, logits, part, options}; }
  // The exponentials are computed again for the gradient.
  Cost cost() const {
    const double elements = gradient ? static_cast<double>(logits.numel()) : 0;
    return {20.0 * (elements + static_cast<double>(statistics.numel())),
            bytes(statistics, losses) + (gradient ? 2 * bytes(logits) : 0),
            accumulator(logits.dtype())};
  }
};

void run(const CrossEntropyStatistics&, CpuStream&);
void run(const CrossEntropyJoined&, CpuStream&);
void run(const CrossEntropyStatistics&, CudaStream&);
void run(const CrossEntropyJoined&, CudaStream&);

}  // namespace spool
