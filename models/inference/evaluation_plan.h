#pragma once

// Chooses the chunks of an evaluation, so that it fits into a budget.

#include <functional>

#include "spool/models/inference/evaluation.h"

namespace spool {

struct PlannedEvaluation {
  ChunkRows rows = {};
  Plan plan = {};
  Report foretold = {};  // its time is that of one batch for the mean loss
};

// The bytes that an evaluation takes in these chunks.
using PeakInChunks = std::function<size_t(const ChunkRows&)>;
// The rows of the fewest chunks, of the loss and of each MLP, whose peak is within the limit; or,
// if none is, those of the lowest peak.  It is the same on every machine, and takes a few calls, at
// most about thirty.  The loss has at most 1024 chunks, and each of an MLP has at least 16 rows.
ChunkRows fewest_chunks(int64_t tokens, size_t limit, const PeakInChunks&);

// Plans an evaluation in those chunks.
PlannedEvaluation plan_evaluation_within(size_t limit, const EvaluationShape&, const Machine&);

}  // namespace spool
