#include "spool/models/inference/evaluation_plan.h"

#include <algorithm>
#include <vector>

#include "spool/runtime/integer.h"

namespace spool {
namespace {

int64_t chunks_of(int64_t all, int64_t rows) { return rows == 0 ? 1 : ceil_div(all, rows); }

// All combinations of rows, by rising number of chunks.
std::vector<ChunkRows> choices_of(int64_t all) {
  std::vector<int64_t> rows{0};
  for (int64_t r = 1; r < all; r *= 2) rows.push_back(r);
  std::vector<ChunkRows> choices;
  for (const int64_t loss : rows) {
    for (const int64_t mlp : rows) choices.push_back({.loss = loss, .mlp = mlp});
  }
  std::ranges::stable_sort(choices, {}, [&](const ChunkRows& c) {
    return chunks_of(all, c.loss) + chunks_of(all, c.mlp);
  });
  return choices;
}

Report foretell(const EvaluationShape& shape, const Plan& plan, const Machine& machine) {
  double seconds = 0;
  Report report = rehearse_totals(machine, [&](MetaStream& stream) {
    Evaluation evaluation(shape, plan, stream);
    evaluation.evaluator.rehearse_losses();
    const double start = stream.now();
    evaluation.evaluator.rehearse_mean_loss();
    seconds = stream.now() - start;
  });
  report.seconds = seconds;
  return report;
}

// Whether the next choice, which has more chunks, is better.
bool is_better(const Report& next, const Report& best, size_t limit) {
  const bool next_fits = next.memory.peak <= limit, best_fits = best.memory.peak <= limit;
  if (next_fits != best_fits) return next_fits;
  return next_fits ? next.seconds < best.seconds : next.memory.peak < best.memory.peak;
}

}  // namespace

Evaluation::Evaluation(const EvaluationShape& shape, const Plan& plan, Stream& stream)
    : model(shape.model.make(shape.dtype, stream, shape.seq)),
      input(shape.batch, shape.seq, stream),
      evaluator(*model, input, plan, stream) {}

void rehearse_evaluation(const EvaluationShape& shape, const Plan& plan, Stream& stream) {
  Evaluation evaluation(shape, plan, stream);
  evaluation.evaluator.rehearse_mean_loss();
  evaluation.evaluator.rehearse_losses();
}

PlannedEvaluation plan_evaluation_within(size_t limit, const EvaluationShape& shape,
                                         const Machine& machine) {
  const Program program = evaluation_program(shape.model, shape.dtype, shape.batch, shape.seq);
  std::optional<PlannedEvaluation> best;
  for (const ChunkRows& rows : choices_of(shape.batch * shape.seq)) {
    Plan plan = plan_evaluation(program, rows);
    const Report foretold = foretell(shape, plan, machine);
    if (best && !is_better(foretold, best->foretold, limit)) continue;
    best = {.rows = rows, .plan = std::move(plan), .foretold = foretold};
  }
  return *std::move(best);
}

}  // namespace spool
