#include "spool/models/inference/evaluation_plan.h"

#include <algorithm>

#include "spool/planner/chunks.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

// The least number from 1 to `max` with which it fits; it fits with `max`, and with more if it does
// with fewer.
template <class Fits>
int64_t least_that_fits(int64_t max, const Fits& fits) {
  if (max == 1 || fits(1)) return 1;
  int64_t below = 1;
  while (max - below > 1) {
    const int64_t middle = below + (max - below) / 2;
    (fits(middle) ? max : below) = middle;
  }
  return max;
}

Report foretell(const EvaluationShape& shape, const Plan& plan, const Machine& machine) {
  double seconds = 0;
  MemoryStats host;
  Report report = rehearse_totals(machine, [&](MetaStream& stream) {
    const PlacedEvaluation evaluation(shape, plan, stream);
    evaluation->evaluator().rehearse_losses();
    const double start = stream.now();
    evaluation->evaluator().rehearse_mean_loss();
    seconds = stream.now() - start;
    host = evaluation.host_memory();
  });
  report.seconds = seconds;
  report.host = host;
  return report;
}

}  // namespace

ChunkRows fewest_chunks(int64_t tokens, size_t limit, const PeakInChunks& peak_in) {
  constexpr int64_t max_chunks = max_tried_chunks, min_rows_of_mlp = 16;
  const int64_t max_loss = std::min(tokens, max_chunks);
  const int64_t max_mlp = std::min(tokens / min_rows_of_mlp, max_chunks);
  const auto rows_of = [&](int64_t loss, int64_t mlp) {
    const auto rows = [&](int64_t chunks) { return chunks > 1 ? ceil_div(tokens, chunks) : 0; };
    return ChunkRows{.loss = rows(std::min(loss, max_loss)), .mlp = rows(std::min(mlp, max_mlp))};
  };
  int64_t chunks = 1;
  size_t least = peak_in({});
  // Where two doublings free nothing, what does not run in chunks has the peak.
  for (int64_t n = 2; least > limit && n < 2 * max_loss && n <= 4 * chunks; n *= 2) {
    const size_t peak = peak_in(rows_of(n, n));
    if (peak >= least) continue;
    least = peak;
    chunks = n;
  }
  // The loss and the MLPs have their peaks at different times, so each has its own least number.
  const size_t most = std::max(limit, least);
  const int64_t mlp =
      least_that_fits(chunks, [&](int64_t n) { return peak_in(rows_of(chunks, n)) <= most; });
  const int64_t loss =
      least_that_fits(chunks, [&](int64_t n) { return peak_in(rows_of(n, mlp)) <= most; });
  return rows_of(loss, mlp);
}

PlannedEvaluation plan_evaluation_within(size_t limit, const EvaluationShape& shape,
                                         const Machine& machine) {
  Program program;
  if (!shape.shards) program = evaluation_program(shape);
  PlannedEvaluation planned;
  EvaluationShape tried = shape;
  const auto foretold = [&](const ChunkRows& rows) {
    planned = {.rows = rows};
    if (shape.shards) {
      tried.chunks = rows;
    } else {
      planned.plan = plan_evaluation(program, rows);
    }
    planned.foretold = foretell(tried, planned.plan, machine);
    return planned.foretold.memory.peak;
  };
  foretold(fewest_chunks(shape.batch * shape.seq, limit, foretold));
  return planned;
}

}  // namespace spool
