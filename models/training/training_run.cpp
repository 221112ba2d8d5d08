#include "spool/models/training/training_run.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "spool/models/families/model_file.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/inference/generator.h"
#include "spool/models/report/report_page.h"
#include "spool/models/training/run/checkpoint_files.h"
#include "spool/models/training/run/tokenizer.h"
#include "spool/planner/calibration/device_identity.h"
#include "spool/planner/calibration/matmul_table.h"
#include "spool/runtime/units.h"

namespace spool {

TrainingRun::TrainingRun(RunOptions options, RunListener& listener)
    : options_(std::move(options)), listener_(listener) {
  std::optional<StoredRun> stored;
  if (options_.resume) {
    checkpoint_ = latest_checkpoint(options_.out);
    check_file_setting(checkpoint_.has_value(), options_.out, {"resume"},
                       "there is no checkpoint to resume; begin a run instead");
    stored = read_run(*checkpoint_);
    adopt(options_, stored->configuration);
    const int64_t steps = options_.training.steps;
    check_file(stored->step <= steps, *checkpoint_ / "run.json", "field step: ", stored->step,
               " is beyond the ", steps, " steps of the run");
    evaluations_ = stored->evaluations;
  } else {
    check_file_setting(!latest_checkpoint(options_.out), options_.out, {"resume", "out"},
                       "already has a run; resume it, or choose another directory");
  }
  check_can_be_stored(options_);
  check_run_settings(options_);
  check_files();
  given_plan_ = read_given_plan(options_);
  tokenizer_ = open_run_tokenizer(options_, checkpoint_);
  sample_ = sample_of(options_, *tokenizer_, checkpoint_);
  options_.training.validate();
  open_data();
  if (options_.resume) {
    check_file(stored->data_fingerprint == data_->fingerprint(), *checkpoint_ / "run.json",
               "the run was trained on other data than ", data_->training()->name(),
               "; resume with the same data, or start a new run");
    first_step_ = last_saved_ = stored->step;
    initial_weights_ = stored->initial_weights;
  }
  plan();
  if (options_.dry_run) return;
  tape_ = step_fingerprints(describe_step(options_.training)).back();
  stream_ = open_stream(options_.device, planned_.budget, options_.threads);
  clock_.emplace(*stream_, planned_.foretold.seconds);
  directory_.emplace(options_.out, options_.keep_checkpoints);
  set_up_trainer(stored);
  if (options_.keep_best && evaluations_.best) directory_->point_best_to(evaluations_.best->step);
  open_log();
}

// Before planning, which may take long.
void TrainingRun::check_files() {
  check_run_directory(options_.out);
  if (options_.keep_best) check_best_link(options_.out);
  check_names_differ(options_);
  if (!options_.trace.empty()) trace_.emplace(options_.trace);
  if (!options_.save_plan.empty()) check_plan_file(options_.save_plan);
  if (!options_.report.empty()) check_report_page_file(options_.report);
  if (!options_.log.empty()) check_log_file(options_.log, options_.resume);
}

void TrainingRun::set_up_trainer(const std::optional<StoredRun>& stored) {
  const LongWork preparing(listener_, "preparing the model");
  const auto tell = [&](size_t done, size_t total) {
    listener_.progress({.what = "loading", .done = done, .total = total, .unit = "bytes"});
  };
  trainer_.emplace(options_.training, planned_.plans, *stream_);
  if (checkpoint_) {
    load_checkpoint(*checkpoint_, *trainer_, tell);
    listener_.say(fmt::format("resuming at step {} from {}", first_step_, checkpoint_->string()));
    say_how_it_differs(*stored);
  } else if (has_weights(options_.model)) {
    const ModelFile file(options_.model);
    trainer_->initialise_from(file, tell);
    initial_weights_ = hash_of_weights(*trainer_);
    listener_.say(fmt::format("starting from the weights of {}", file.name()));
  } else {
    trainer_->initialise();
  }
  choose_algorithms(stored);
  trainer_->prepare();
  stream_->synchronize();  // so that this is not a part of the first step
}

// A run keeps the table that it began with, whatever is timed meanwhile.
void TrainingRun::choose_algorithms(const std::optional<StoredRun>& stored) {
  products_ =
      stored ? stored->products : load_matmul_table(cache_folder(), matmul_algorithms(*stream_));
  if (products_.places.empty()) return;
  if (!products_.is_of_device_of(matmul_algorithms(*stream_))) {
    return listener_.say(
        fmt::format("the run began with algorithms of matrix products for {} with cuBLASLt {}, "
                    "which this device "
                    "or library cannot take: its numbers may differ in their last bits",
                    products_.device, products_.library));
  }
  use_matmul_algorithms(*stream_, products_);
  listener_.say(fmt::format("matrix products take the algorithms of a table of {} forms for {}",
                            products_.places.size(), products_.device));
}

void TrainingRun::say_how_it_differs(const StoredRun& stored) {
  const int64_t before = stored.configuration.member("steps").integer<int64_t>();
  const int64_t steps = options_.training.steps;
  if (steps != before) {
    TrainingConfig shorter = options_.training;
    shorter.steps = before;
    const bool same =
        options_.training.learning_rate().begins_as(shorter.learning_rate(), first_step_);
    listener_.say(fmt::format("the run now has {} steps instead of {}; {}", steps, before,
                              same ? "its learning rate so far is that of a run of this length"
                                   : "from here on the learning rate follows that length"));
  }
  if (stored.tape != tape_ && first_step_ < steps) {
    listener_.say(
        "another version of Spool wrote this checkpoint, whose steps have other ops: the run goes "
        "on, but its numbers may differ from that version's in their last bits");
  }
}

void TrainingRun::open_log() {
  if (options_.log.empty()) return;
  std::optional<ResumedLog> resumed;
  if (checkpoint_) resumed = {.steps_done = first_step_, .evaluates_first = owes_evaluation()};
  log_ = RunLog(options_, planned_.foretold.memory.peak, resumed, listener_);
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::open_data() {
  const TrainingConfig& t = options_.training;
  data_.emplace(options_, *tokenizer_, listener_);
  batches_.emplace(data_->training(), t.seq, options_.data_seed.value_or(t.seed));
  ValidationRows(data_->validation(), t.seq);
}

void TrainingRun::plan() {
  CalibrationRequest calibration = calibration_of(options_, given_plan_);
  calibration.say = [&](const std::string& text) { listener_.say(text); };
  {
    const LongWork measuring(listener_, "measuring kernels");
    machine_ = calibrate(calibration).machine;
  }
  const RunRequest request = request_of(options_, machine_, given_plan_);
  RunPlanner planner(options_.training, request, sample_.length, machine_);
  {
    const LongWork planning(listener_, "planning");
    planned_ = planner.plan();
  }
  options_.training = planned_.config;
  if (!options_.save_plan.empty() && !planned_.refusal) {
    save_step_plan(options_.save_plan, planned_, machine_);
    listener_.say(fmt::format("the plan is in {}", options_.save_plan));
  }
  listener_.say(fmt::format("{} tokens to train on, {} to validate with, from {}",
                            data_->training()->size(), data_->validation()->size(),
                            data_->training()->name()));
  listener_.planned(options_, machine_, planned_);
  for (const std::string& words :
       {lowered_budget(options_.memory, request), warn_of_memory(planned_, request)}) {
    if (!words.empty() && !planned_.refusal) listener_.warn(words);
  }
  if (trace_) listener_.say(trace_->foretell(options_.training, planned_.plans, machine_));
  open_report(planner);
  if (planned_.refusal) throw *planned_.refusal;
}

void TrainingRun::run(const std::function<bool()>& stop) {
  if (options_.dry_run) return;
  const int64_t steps = options_.training.steps;
  if ((first_step_ == steps && !owes_evaluation()) || is_out_of_patience()) {
    return say_it_is_finished();
  }
  enqueued_ = first_step_;
  saved_at_ = host_clock();
  if (owes_evaluation() && !make_up_evaluation(stop)) return listener_.stopped(first_step_);
  int64_t done = first_step_;
  while (done < steps && !is_out_of_patience()) {
    train_step(done, stop());
    after_step(++done, stop);
    if (enqueued_ > done || !stop()) continue;
    checkpoint(done);
    if (trace_) listener_.say("no trace was written: the run stopped before the traced step");
    listener_.stopped(done);
    return;
  }
  listener_.finished();
  if (is_out_of_patience()) listener_.say(fmt::format("the run ends {}", lost_patience()));
  if (options_.keep_best && !evaluations_.ends_at(done)) evaluate_between_steps(done, stop);
  checkpoint(done);
  if (options_.keep_best && !evaluations_.ends_at(done)) return listener_.stopped(done);
  finish(done, stop);
}

void TrainingRun::say_it_is_finished() {
  if (is_out_of_patience()) {
    return listener_.say(fmt::format(
        "the run is finished: it ended {}, and the model is in {}; with more patience it goes on",
        lost_patience(), checkpoint_->string()));
  }
  listener_.say(fmt::format(
      "the run is finished: its {} steps are done, and the model is in {}; with more steps it goes "
      "on",
      first_step_, checkpoint_->string()));
}

// Evaluates and writes a sample, after the model is saved.
void TrainingRun::finish(int64_t step, const std::function<bool()>& stop) {
  const auto& batches = options_.final_eval_batches;
  if (batches != 0) {
    const ValidationRows rows = batches
                                    ? validation_rows(*batches)
                                    : ValidationRows(data_->validation(), options_.training.seq);
    const std::optional<double> loss = evaluate(rows, step, stop);
    if (!loss) {
      write_report();
      return listener_.say(fmt::format("stopped in the final evaluation; the model is in {}",
                                       checkpoint_->string()));
    }
    const int64_t all = data_->validation()->size() - 1;
    listener_.say(fmt::format("validation loss {:.4f} nats a token, over {} targets", *loss,
                              rows.targets() == all
                                  ? fmt::format("all {}", all)
                                  : fmt::format("{} of {}", rows.targets(), all)));
  }
  write_sample(step);
  listener_.say(fmt::format("peak {} bytes, foretold {} bytes", stream_->memory().peak,
                            planned_.foretold.memory.peak));
  if (planned_.foretold.host.peak) {
    listener_.say(fmt::format("host memory {} bytes, foretold {} bytes",
                              trainer_->host_memory().peak, planned_.foretold.host.peak));
  }
  write_report();
  say_where_the_best_is();
  listener_.say(fmt::format("the model is in {}", checkpoint_->string()));
}

// If the data cannot be read any more, the run ends, and what was trained in `done` steps is saved.
void TrainingRun::read_data(int64_t done, const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file || (done == first_step_ && !checkpoint_)) throw;
    checkpoint(done);
    ErrorFields fields = error.fields();
    fields.settings.emplace_back("resume");
    throw Error(error.kind(),
                sentence(error.what(), "; the run is saved after step ", done, ", in ",
                         checkpoint_->string(), ", and can be resumed with the data as it was"),
                fields);
  }
}

void TrainingRun::fail_not_finite(int64_t step, const char* what, double value) {
  if (last_saved_ <= first_step_) {  // what the run began with may be at fault
    if (checkpoint_)
      check_finite_checkpoint(*checkpoint_);
    else if (has_weights(options_.model))
      check_finite(ModelFile(options_.model).tensors());
  }
  write_report();
  const std::string kept = checkpoint_
                               ? sentence("the last good checkpoint is ", checkpoint_->string())
                               : std::string("no checkpoint had been written yet");
  throw Error(ErrorKind::numeric,
              sentence("step ", step, ": ", what, " ", value, ", so training stopped; ", kept,
                       "; a smaller learning rate or a longer warm-up may help"),
              {.settings = {"lr", "warmup"}});
}

}  // namespace spool
