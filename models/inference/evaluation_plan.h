#pragma once

// Chooses how many rows of an evaluation are live at a time, so that it fits into a budget.

#include "spool/models/inference/evaluator.h"

namespace spool {

// What an evaluator computes: batches of rows of tokens, by a model.
struct EvaluationShape {
  ModelConfig model = {};
  DType dtype = DType::f32;  // of the computation
  int64_t batch = 4;         // rows
  int64_t seq = 0;           // tokens of a row
};

// A model, its input and an evaluator of both.
struct Evaluation {
  std::shared_ptr<Model> model;
  BatchInput input;
  Evaluator evaluator;
  // The plan must outlive this.
  Evaluation(const EvaluationShape&, const Plan&, Stream&);
};

// A batch for the mean loss, then one for the loss of each target; on any stream.
void rehearse_evaluation(const EvaluationShape&, const Plan&, Stream&);

struct PlannedEvaluation {
  ChunkRows rows = {};
  Plan plan = {};
  Report foretold = {};  // its time is that of a batch for the mean loss
};

// Of the loss and the MLPs in chunks of all rows, or of a power of two of them, the fastest by the
// machine's clock whose foretold peak is within the limit, in as few chunks as that allows; or,
// where none is, the one of the lowest peak.  Blocks are alike: the peak is a maximum over them.
// Takes a millisecond for each of at most a few hundred rehearsals.
PlannedEvaluation plan_evaluation_within(size_t limit, const EvaluationShape&, const Machine&);

}  // namespace spool
