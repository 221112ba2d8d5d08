#include "spool/models/training/train.h"

#include <spdlog/fmt/fmt.h>

#include "spool/models/training/run/checkpoints.h"
#include "spool/models/training/run/clock.h"
#include "spool/models/training/run/evaluations.h"
#include "spool/models/training/run/ranks.h"
#include "spool/models/training/run/samples.h"
#include "spool/models/training/run/steps.h"

namespace spool {
namespace {

void tell_it_is_finished(const RunSetup& run, const Evaluations& evaluations) {
  const std::string model = run.checkpoint->string();
  run.listeners->say(
      evaluations.is_out_of_patience()
          ? fmt::format("the run is finished: it ended {}, and the model is in {}; with more "
                        "patience it goes on",
                        evaluations.describe_lost_patience(), model)
          : fmt::format("the run is finished: its {} steps are done, and the model is in {}; with "
                        "more steps it goes on",
                        run.first_step, model));
}

// What a run does after its last step, once the model is saved; false if a stop cuts it short.
bool finish(const RunSetup& run, int64_t done, const Checkpoints& checkpoints,
            Evaluations& evaluations, const Samples& samples) {
  RunListeners& listeners = *run.listeners;
  const std::string model = checkpoints.latest()->string();
  if (!evaluations.evaluate_at_the_end()) {
    listeners.flush(run.stream->memory().peak);
    listeners.say(fmt::format("stopped in the final evaluation; the model is in {}", model));
    return false;
  }
  samples.write(done);
  const size_t peak = run.stream->memory().peak, host_peak = run.trainer->host_memory().peak;
  const Report& foretold = run.planned.foretold;
  listeners.say(fmt::format("peak {} bytes, foretold {} bytes", peak, foretold.memory.peak));
  if (foretold.host.peak) {
    listeners.say(
        fmt::format("host memory {} bytes, foretold {} bytes", host_peak, foretold.host.peak));
  }
  tell_ranks(run, done);
  listeners.flush(peak);
  checkpoints.tell_best();
  listeners.say(fmt::format("the model is in {}", model));
  return true;
}

// Returns whether a stop cut an evaluation short.
bool end_run(const RunSetup& run, int64_t done, Checkpoints& checkpoints, Evaluations& evaluations,
             const Samples& samples) {
  RunListeners& listeners = *run.listeners;
  const bool keeps_best = run.options.keep_best;
  listeners.finished();
  if (evaluations.is_out_of_patience()) {
    listeners.say(fmt::format("the run ends {}", evaluations.describe_lost_patience()));
  }
  if (keeps_best && !evaluations.is_done()) evaluations.evaluate();
  checkpoints.write();
  if (keeps_best && !evaluations.is_done()) {
    listeners.stopped(done);
    return true;
  }
  return !finish(run, done, checkpoints, evaluations, samples);
}

}  // namespace

bool train(const RunSetup& run, const std::function<bool()>& stop) {
  if (run.options.dry_run) return false;
  RunListeners& listeners = *run.listeners;
  const bool keeps_best = run.options.keep_best;
  RunState state(run);
  Checkpoints checkpoints(run, state);
  Evaluations evaluations{run, state, checkpoints, stop};
  const Samples samples(run);
  ClockCorrection correction(run);
  TrainingSteps steps(run, state, checkpoints, correction, [&](int64_t done) {
    return evaluations.is_due(done) || samples.is_due(done) || checkpoints.is_due(done);
  });

  const bool is_finished = state.done == run.steps() && !run.owes_evaluation();
  if (is_finished || evaluations.is_out_of_patience()) {
    tell_it_is_finished(run, evaluations);
    return false;
  }
  const auto is_stopped = [&] {
    listeners.stopped(state.done);
    return true;
  };
  if (run.owes_evaluation() && !evaluations.make_up()) return is_stopped();

  while (state.done < run.steps() && !evaluations.is_out_of_patience()) {
    listeners.step(steps.train_next(stop()));
    correction.tell_if_complete(state.done);
    steps.write_trace_if_complete();
    const bool is_best = evaluations.is_due(state.done) && evaluations.evaluate();
    if (samples.is_due(state.done)) samples.write(state.done);
    if (checkpoints.is_due(state.done) || (is_best && keeps_best)) checkpoints.try_write();
    // Ranks stop after the same step.
    if (state.enqueued > state.done || !(run.ranks ? state.stops : stop())) continue;
    checkpoints.write();
    checkpoints.end_if_unreadable(steps.failure());
    if (steps.is_trace_missing()) {
      listeners.say("no trace was written: the run stopped before the traced step");
    }
    return is_stopped();
  }

  return end_run(run, state.done, checkpoints, evaluations, samples);
}

}  // namespace spool
