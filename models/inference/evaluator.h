#pragma once

// A model's losses over rows of tokens.

#include "spool/models/data/batch.h"
#include "spool/models/families/gpt2.h"
#include "spool/planner/rehearsal.h"

namespace spool {

class Evaluator {
 public:
  // The arguments must outlive the evaluator.  The plan comes from plan_evaluation(), or is empty.
  Evaluator(Gpt2&, BatchInput&, const Plan&, Stream&);

  // Sums the losses of rows [0, count), a batch at a time.  The last batch is filled up with rows
  // from `count` on, whose targets must all be ignored ones.
  void evaluate(int64_t count, const Rows&);
  // The sum of the last evaluation's losses; waits for it.
  double loss_sum() const;

  // Enqueues the loss of each target of one batch, f32 (B, T); 0 for ignored targets.
  Tensor losses(const Rows&);

 private:
  Var loss(Tape&, Reduction);

  Gpt2& model_;
  BatchInput& input_;
  const Plan& plan_;
  Stream& stream_;
  Tensor loss_sum_;  // f64 (1)
};

// The plan of an evaluator's tapes: the loss is computed in chunks of `loss_chunk` rows of logits;
// 0: all rows at once.
Plan plan_evaluation(const Gpt2Config&, DType, int64_t batch, int64_t seq, int64_t loss_chunk);

}  // namespace spool
