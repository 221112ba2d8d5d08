#include "spool/models/training/run/steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "spool/runtime/trace.h"

namespace spool {

TrainingSteps::TrainingSteps(const RunSetup& run, RunState& state, Checkpoints& checkpoints,
                             ClockCorrection& correction, std::function<bool(int64_t)> is_due)
    : run_(run),
      state_(state),
      checkpoints_(checkpoints),
      correction_(correction),
      is_due_(std::move(is_due)) {}

// Whether the step may be enqueued behind the one before, whose result is not known: if nothing
// happens in between, and both are ordinary.
bool TrainingSteps::may_run_ahead(int64_t step) const {
  return run_.trainer->runs_ahead() && step < run_.steps() && !is_traced(step - 1) &&
         !is_traced(step) && !is_due_(step);
}

void TrainingSteps::read_next(int64_t step) {
  if (next_step_ == step) return;
  const int64_t rows = run_.options.training.rows_per_step();
  next_step_ = -1;
  run_.data->training().fill({step * rows, (step + 1) * rows}, next_);
  next_step_ = step;
}

void TrainingSteps::read_batch(int64_t step) {
  read_next(step);
  std::swap(state_.batch, next_);
  next_step_ = -1;
}

// Whether a rank, with others, has the data of the step after this one: ranks do not run ahead, so
// all know how it is before that step.
bool TrainingSteps::can_go_on(int64_t step) {
  const bool has_others = run_.ranks && run_.ranks->size() > 1;
  if (!has_others || step + 1 >= run_.steps()) return true;
  try {
    read_next(step + 1);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) throw;
    failure_ = std::current_exception();
    return false;
  }
}

// Reads the batch of a step that runs ahead; one that fails is read again in its turn.
bool TrainingSteps::can_read_batch(int64_t step) {
  try {
    read_batch(step);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) throw;
    return false;
  }
}

void TrainingSteps::enqueue(int64_t step, bool stops) {
  const bool saves = run_.ranks && run_.writes() && checkpoints_.is_time();
  if (run_.ranks) run_.ranks->is_doing(sentence("step ", step + 1));
  const auto enqueue = [&] { run_.trainer->step(step, state_.batch, stops, saves); };
  if (is_traced(step)) {
    run_.trace->measure(*run_.stream, enqueue);
  } else {
    correction_.enqueue(enqueue);
  }
  state_.enqueued = step + 1;
}

StepNumbers TrainingSteps::train_next(bool stops) {
  const int64_t step = state_.done;
  if (state_.enqueued == step) {
    step_began_ = host_clock();
    correction_.begin_step();
    checkpoints_.read_data([&] { read_batch(step); });
    enqueue(step, !can_go_on(step) || stops);
  }
  const bool is_ahead = !stops && !correction_.is_due_after_next() && may_run_ahead(step + 1);
  if (is_ahead && can_read_batch(step + 1)) enqueue(step + 1, stops);
  const StepResult result = run_.trainer->result(step);
  const double now = host_clock(), seconds = now - std::exchange(step_began_, now);
  correction_.end_step();
  correction_.begin_step();
  if (!std::isfinite(result.loss)) {
    checkpoints_.fail_not_finite(step + 1, "the loss is", result.loss);
  }
  if (!result.finite) {
    checkpoints_.fail_not_finite(step + 1, "the norm of the gradients is", result.grad_norm);
  }
  state_.done = step + 1;
  state_.stops = result.stops;
  state_.saves = result.saves;
  const int64_t tokens = run_.options.training.tokens_per_step();
  const auto& last = state_.evaluations.last;
  return {.step = step + 1,
          .loss = result.loss,
          .grad_norm = result.grad_norm,
          .val_loss = last ? std::optional(last->loss) : std::nullopt,
          .lr = run_.trainer->learning_rate(step),
          .seconds = seconds,
          .tokens_per_s = static_cast<double>(tokens) / seconds,
          .peak_bytes = run_.stream->memory().peak,
          .tokens = (step + 1) * tokens};
}

void TrainingSteps::write_trace_if_complete() {
  if (!run_.writes() || !is_traced(state_.done - 1)) return;
  run_.listeners->say(run_.trace->write(state_.done));
}

}  // namespace spool
