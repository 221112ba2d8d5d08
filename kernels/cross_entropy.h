#pragma once

// Cross entropy of rows of logits against one target per row, and its gradient in place.
// z[n,v] = k tanh(logits[n,v] / k) with a soft cap k, else the logits; over v < V:
//   lse[n] = log sum_v exp z[n,v]     p[n,v] = exp(z[n,v] - lse[n])     e = label_smoothing
//   losses[n] = lse[n] - (1 - e) z[n,y] - e/V sum_v z[n,v] + z_loss lse[n]^2
//   dz[n,v] = (p[n,v] (1 + 2 z_loss lse[n]) - (1 - e) [v = y] - e/V) * g[n]
// With a soft cap the gradient of the logits is dz times 1 - (z/k)^2.  A row whose target is
// ignore_index has loss 0 and gradient 0.  Columns from V on are padding, with gradient 0 and no
// probability.
//   g[n] = scale[0] * (upstream[n or 0] - upstream_known)
// The gradient is formed in f32 (f64 for f64) and rounded once.
//
// What is written shares no memory with other arguments.
//
// CountTargets: scale[0] = 1 / max(1, number of targets that are not ignore_index).

#include "spool/kernels/launch.h"

namespace spool {

struct CrossEntropyOptions {
  int64_t vocabulary = 0;  // V; 0: all columns
  int32_t ignore_index = -100;
  float label_smoothing = 0;
  float z_loss = 0;
  float soft_cap = 0;  // 0: none

  // V of logits with this many columns, all parts together.
  int64_t vocabulary_of(const char* kernel, int64_t columns) const {
    check(vocabulary >= 0, kernel, ": a vocabulary of ", vocabulary,
          "; use 0 for all columns of the logits, or the number of those that are no padding");
    check(vocabulary <= columns, kernel, ": the vocabulary of ", vocabulary, " is larger than the ",
          columns, " columns of the logits");
    return vocabulary > 0 ? vocabulary : columns;
  }
};

// The number of 16-byte packs that a row of logits touches at most.
int64_t packs_of_row(const View& logits);

struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  View logits;       // (N, at least V); becomes its own gradient if `gradient`
  View targets;      // i32 (N), each in [0, V) or ignore_index
  View losses = {};  // (N), f32 (f64 for f64 logits); absent: not computed
  bool gradient = false;
  View scale = {};           // (1), type of losses; absent: 1
  View upstream = {};        // (1) or (N), type of losses; absent: 1
  float upstream_known = 0;  // the part of it that earlier gradients include
  CrossEntropyOptions options = {};

  void check_arguments() const;
  int64_t vocabulary() const { return options.vocabulary_of(name, logits.shape().row()); }  // V
  Cost cost() const { return cost_of(gradient ? 3 : 1); }
  // On cuda a block keeps part of a row, and need not read it again for the gradient.
  Cost cost(const CudaArchitecture&) const;
  // How many of packs_of_row() a block keeps in shared memory.
  int64_t kept_packs(const CudaArchitecture&) const;

 private:
  Cost cost_of(double passes) const {
    return {(gradient ? 24.0 : 20.0) * static_cast<double>(logits.numel()), passes * bytes(logits),
            accumulator(logits.dtype())};
  }
};

struct CountTargets {
  static constexpr const char* name = "count_targets";
  View scale, targets;  // (1), f32 or f64; i32 (N)
  int32_t ignore_index = -100;
  void check_arguments() const;
  Cost cost() const { return {0, bytes(targets)}; }
};

void run(const CrossEntropy&, CpuStream&);
void run(const CountTargets&, CpuStream&);
void run(const CrossEntropy&, CudaStream&);
void run(const CountTargets&, CudaStream&);

}  // namespace spool
