#include "spool/models/training/run/evaluations.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <exception>

namespace spool {

bool Evaluations::is_due(int64_t done) const {
  return run.options.eval_batches > 0 && run.is_due(run.options.eval_every, done);
}

// All ranks cut an evaluation short together, where one is asked to stop or cannot read its data.
bool Evaluations::are_to_stop(bool own) const {
  if (!run.ranks) return own;
  const auto all = run.ranks->gather("evaluation goes on", own ? "no" : "");
  return std::ranges::any_of(all, [](const std::string& word) { return !word.empty(); });
}

std::optional<double> Evaluations::mean_loss(const RowSource& rows) {
  struct Stopped {};
  std::exception_ptr failure;
  try {
    return run.trainer->evaluator().mean_loss(rows, [&](int64_t done) {
      run.listeners->progress({.what = "evaluating",
                               .done = static_cast<size_t>(done),
                               .total = static_cast<size_t>(rows.rows()),
                               .unit = "rows"});
      if (are_to_stop(stop())) throw Stopped();
    });
  } catch (const Stopped&) {
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    failure = std::current_exception();
    are_to_stop(/*own=*/true);
  }
  state.stops = true;
  checkpoints.end_if_unreadable(failure);
  return {};
}

std::optional<EvaluationNumbers> Evaluations::evaluate(const RowSource& rows) {
  EvaluationNumbers numbers{.step = state.done, .targets = targets_of(rows)};
  numbers.whole = numbers.targets == run.data->validation_targets();
  const std::optional<double> loss = mean_loss(rows);
  if (!loss) return {};
  numbers.loss = *loss;
  run.listeners->evaluated(numbers);
  return numbers;
}

bool Evaluations::evaluate() {
  const RunOptions& o = run.options;
  const auto rows = run.data->validation(o.eval_batches * o.training.batch);
  const auto numbers = evaluate(*rows);
  return numbers && state.evaluations.add({.step = state.done, .loss = numbers->loss});
}

bool Evaluations::make_up() {
  const bool is_best = evaluate();
  if (is_done()) checkpoints.store_evaluations(is_best);
  return is_done();
}

bool Evaluations::is_out_of_patience() const {
  return run.options.patience > 0 && state.evaluations.since_best >= run.options.patience;
}

std::string Evaluations::describe_lost_patience() const {
  const EvaluationHistory& history = state.evaluations;
  const std::string than =
      history.best ? fmt::format("that of step {}, {:.4f}", history.best->step, history.best->loss)
                   : "a finite one";
  return fmt::format("after step {}: in {} evaluations no validation loss was better than {}",
                     history.last->step, history.since_best, than);
}

bool Evaluations::evaluate_at_the_end() {
  const RunOptions& o = run.options;
  if (o.final_eval_batches == 0) return true;
  const int64_t limit =
      o.final_eval_batches ? *o.final_eval_batches * o.training.batch : ValidationRows::all;
  const auto numbers = evaluate(*run.data->validation(limit));
  if (!numbers) return false;
  const int64_t all = run.data->validation_targets();
  run.listeners->say(fmt::format("validation loss {:.4f} nats a token, over {} targets",
                                 numbers->loss,
                                 numbers->whole ? fmt::format("all {}", all)
                                                : fmt::format("{} of {}", numbers->targets, all)));
  return true;
}

}  // namespace spool
