#pragma once

// Rows of tokens on the device, and a model's losses over them.

#include <functional>
#include <span>
#include <vector>

#include "spool/models/families/gpt2.h"
#include "spool/planner/rehearsal.h"

namespace spool {

// Writes row `index` of the data: as many tokens and targets as there is room for.
using Rows =
    std::function<void(int64_t index, std::span<int32_t> tokens, std::span<int32_t> targets)>;

// A micro-batch.
struct BatchInput {
  Tensor tokens, targets;  // i32 (B, T)

  BatchInput(int64_t batch, int64_t seq, Stream&);
  // Rows [0, B), some at a time, so that the host never holds a large batch.
  void upload(const Rows&);
};

class Evaluator {
 public:
  // The arguments must outlive the evaluator.  The plan is plan_evaluation()'s, or empty.
  Evaluator(Gpt2&, BatchInput&, const Plan&, Stream&);

  // Sums the losses of rows [0, count), a batch at a time.  The last batch is filled with rows from
  // `count` on, all of whose targets must be ignored ones.
  void evaluate(int64_t count, const Rows&);
  // The sum of the last evaluation.
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
