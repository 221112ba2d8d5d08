#pragma once

// Chooses the chunks of an evaluation, so that it fits into a budget.

#include "spool/models/inference/evaluator.h"

namespace spool {

// The work of an evaluator: a model, and the shape of a batch of tokens.
struct EvaluationShape {
  ModelConfig model = {};
  DType dtype = DType::f32;  // of the computation
  int64_t batch = 4;         // rows
  int64_t seq = 0;           // tokens of a row
};

// A model, its input, and their evaluator.
struct Evaluation {
  std::shared_ptr<Model> model;
  BatchInput input;
  Evaluator evaluator;
  // The plan must outlive this.
  Evaluation(const EvaluationShape&, const Plan&, Stream&);
};

// Evaluates a batch for the mean loss, then one for the loss of each target; on any stream.
void rehearse_evaluation(const EvaluationShape&, const Plan&, Stream&);

struct PlannedEvaluation {
  ChunkRows rows = {};
  Plan plan = {};
  Report foretold = {};  // its time is that of one batch for the mean loss
};

// Tries the loss and the MLPs in chunks of all rows, or of a power of two of them.  Returns the
// fastest choice by the machine's clock whose foretold peak is within the limit, with as few chunks
// as possible; or, if none fits, that of the lowest peak.  The peak is that of one block, as all
// are alike.  Takes a millisecond for each of at most a few hundred rehearsals.
PlannedEvaluation plan_evaluation_within(size_t limit, const EvaluationShape&, const Machine&);

}  // namespace spool
