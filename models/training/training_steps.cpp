#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "spool/models/training/training_run.h"
#include "spool/runtime/trace.h"
#include "spool/runtime/units.h"

// The steps of a TrainingRun.

namespace spool {

// In the next step, for look_for_a_faster_plan(); on a cpu it costs nothing.
bool TrainingRun::times_kernels() const {
  return planned_.is_chosen && options_.device.type == DeviceType::cpu && clock_->counts_next();
}

// The second step of the run, in which nothing happens for the first time, or its only one.
bool TrainingRun::is_traced(int64_t step) const {
  return trace_ && step == std::min(first_step_ + 1, options_.training.steps - 1);
}

bool TrainingRun::is_due(int64_t every, int64_t done) const {
  return every > 0 && done % every == 0 && done < options_.training.steps;
}

// Whether the step may be enqueued behind the one before, whose result nobody has seen: if nothing
// happens in between, and both are ordinary.
bool TrainingRun::may_run_ahead(int64_t step) const {
  return trainer_->runs_ahead() && step < options_.training.steps && !is_traced(step - 1) &&
         !is_traced(step) && !is_due(options_.eval_every, step) &&
         !is_due(options_.sample_every, step) && !is_due(options_.checkpoint_every, step) &&
         !is_time_to_save();
}

void TrainingRun::read_batch(int64_t step) {
  const int64_t rows = options_.training.rows_per_step();
  batches_->fill({step * rows, (step + 1) * rows}, batch_);
}

void TrainingRun::enqueue_step(int64_t step) {
  const auto enqueue = [&] { trainer_->step(step, batch_); };
  if (is_traced(step)) {
    trace_->measure(*stream_, enqueue);
  } else if (times_kernels()) {
    kernel_times_.measure(*stream_, enqueue);
  } else {
    enqueue();
  }
  enqueued_ = step + 1;
}

// Whether the batch of a step that runs ahead can be read; if not, it is read again in its turn.
bool TrainingRun::has_batch(int64_t step) {
  try {
    read_batch(step);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) throw;
    return false;
  }
}

void TrainingRun::train_step(int64_t step, bool stops) {
  if (enqueued_ == step) {
    step_began_ = host_clock();
    clock_->begin();
    read_data(step, [&] { read_batch(step); });
    enqueue_step(step);
  }
  const bool ahead = !stops && !clock_->completes_next() && may_run_ahead(step + 1);
  if (ahead && has_batch(step + 1)) enqueue_step(step + 1);
  const StepResult result = trainer_->result(step);
  const double now = host_clock(), seconds = now - step_began_;
  step_began_ = now;
  const std::optional<double> corrected = clock_->end();
  clock_->begin();
  say_step(step, result, seconds);
  if (corrected) correct(step + 1, *corrected);
  if (!is_traced(step)) return;
  listener_.say(trace_->write(step + 1));
  trace_.reset();
}

void TrainingRun::say_step(int64_t step, const StepResult& result, double seconds) {
  if (!std::isfinite(result.loss)) fail_not_finite(step + 1, "the loss is", result.loss);
  if (!result.finite) fail_not_finite(step + 1, "the norm of the gradients is", result.grad_norm);
  const int64_t tokens = options_.training.tokens_per_step();
  const auto& last = evaluations_.last;
  const StepNumbers numbers{.step = step + 1,
                            .loss = result.loss,
                            .grad_norm = result.grad_norm,
                            .val_loss = last ? std::optional(last->loss) : std::nullopt,
                            .lr = trainer_->learning_rate(step),
                            .seconds = seconds,
                            .tokens_per_s = static_cast<double>(tokens) / seconds,
                            .peak_bytes = stream_->memory().peak,
                            .tokens = (step + 1) * tokens};
  listener_.step(numbers);
  log_.write(numbers);
  if (report_) report_->add(numbers);
}

void TrainingRun::correct(int64_t step, double seconds) {
  listener_.say(fmt::format("foretold step time corrected to {}: {:.3f} x what the plan says",
                            format_seconds(seconds), clock_->factor()));
  const CorrectedTime time{.step = step, .foretold = clock_->foretold(), .corrected = seconds};
  log_.write(time);
  if (report_) report_->add(time);
  if (planned_.is_chosen) look_for_a_faster_plan();
}

void TrainingRun::look_for_a_faster_plan() {
  const LongWork planning(listener_, "planning");
  const Machine corrected = corrected_machine(
      machine_, clock_->factor(), kernel_times_.kernels(planned_.config, planned_.plans, machine_));
  const auto faster = find_faster_plan(planned_, request_of(options_, machine_, given_plan_),
                                       sample_.length, corrected);
  if (!faster) return;
  listener_.say(fmt::format(
      "by the times of these steps another plan would be {:.1f} % faster, {} a step instead of {}; "
      "this run keeps its own",
      100 * (1 - faster->seconds / faster->own_seconds), format_seconds(faster->seconds),
      format_seconds(faster->own_seconds)));
}

}  // namespace spool
