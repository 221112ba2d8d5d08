#include "spool/models/training/training_run.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "spool/models/families/model_file.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/inference/generator.h"
#include "spool/models/training/budget.h"
#include "spool/models/training/run_calibration.h"
#include "spool/models/training/run_checkpoint.h"
#include "spool/models/training/run_tokenizer.h"
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
  } else {
    check_file_setting(!latest_checkpoint(options_.out), options_.out, {"resume", "out"},
                       "already has a run; resume it, or choose another directory");
  }
  check_can_be_stored(options_);
  check_files();
  given_plan_ = read_given_plan(options_);
  tokenizer_ = open_run_tokenizer(options_, checkpoint_);
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
  tape_ = step_fingerprints(options_.training).back();
  stream_ = open_stream(options_.device, planned_.budget, options_.threads);
  clock_.emplace(*stream_, planned_.foretold.seconds);
  directory_.emplace(options_.out, options_.keep_checkpoints);
  set_up_trainer();
  open_log();
}

// Before planning, which may take long.
void TrainingRun::check_files() {
  check_run_directory(options_.out);
  check_names_differ(options_);
  if (!options_.trace.empty()) trace_.emplace(options_.trace);
  if (!options_.save_plan.empty()) check_plan_file(options_.save_plan);
  if (!options_.log.empty()) check_log_file(options_.log, options_.resume);
}

void TrainingRun::set_up_trainer() {
  const LongWork preparing(listener_, "preparing the model");
  const auto tell = [&](size_t done, size_t total) {
    listener_.progress({.what = "loading", .done = done, .total = total, .unit = "bytes"});
  };
  trainer_.emplace(options_.training, planned_.plans, *stream_);
  if (checkpoint_) {
    load_checkpoint(*checkpoint_, *trainer_, tell);
    listener_.say(fmt::format("resuming at step {} from {}", first_step_, checkpoint_->string()));
    say_how_it_differs(read_run(*checkpoint_));
  } else if (has_weights(options_.model)) {
    const ModelFile file(options_.model);
    trainer_->initialise_from(file, tell);
    initial_weights_ = hash_of_weights(*trainer_);
    listener_.say(fmt::format("starting from the weights of {}", file.name()));
  } else {
    trainer_->initialise();
  }
  choose_algorithms();
  trainer_->prepare();
  stream_->synchronize();  // so that this is not a part of the first step
}

// A run keeps the table that it began with, whatever is timed meanwhile.
void TrainingRun::choose_algorithms() {
  products_ = checkpoint_ ? read_run(*checkpoint_).products
                          : load_matmul_table(cache_folder(), matmul_algorithms(*stream_));
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
    listener_.say(fmt::format(
        "the run now has {} steps instead of {}; from here on the learning rate follows "
        "that length",
        steps, before));
  }
  if (stored.tape != tape_ && first_step_ < steps) {
    listener_.say(
        "another version of Spool wrote this checkpoint, whose steps have other ops: the run goes "
        "on, but its numbers may differ from that version's in their last bits");
  }
}

void TrainingRun::open_log() {
  if (options_.log.empty()) return;
  log_ = RunLog(options_, planned_.foretold.memory.peak,
                checkpoint_ ? std::optional(first_step_ + 1) : std::nullopt, listener_);
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::open_data() {
  const TrainingConfig& t = options_.training;
  data_.emplace(options_, *tokenizer_, listener_);
  batches_.emplace(data_->training(), t.seq, t.seed);
  ValidationRows(data_->validation(), t.seq);
}

RunRequest TrainingRun::request(const Machine& machine) const {
  RunRequest request = request_of(options_, machine, given_plan_);
  request.sample = sample_length(*tokenizer_);
  request.limit = memory_limit(options_.device, options_.memory, machine);
  request.limit->batch_is_fixed = options_.resume;
  return request;
}

void TrainingRun::plan() {
  CalibrationRequest calibration = calibration_of(options_, given_plan_);
  calibration.say = [&](const std::string& text) { listener_.say(text); };
  {
    const LongWork measuring(listener_, "measuring kernels");
    machine_ = calibrate(calibration).machine;
  }
  const RunRequest request = this->request(machine_);
  {
    const LongWork planning(listener_, "planning");
    planned_ = plan_run(options_.training, request, machine_);
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
  for (const std::string& words : {lowered_budget(options_.memory, *request.limit),
                                   warn_of_memory(planned_, *request.limit)}) {
    if (!words.empty()) listener_.say("  " + words);
  }
  if (options_.policy.offload != Offloading::none && !offloads(planned_.plans.step)) {
    listener_.say(
        "  nothing is offloaded: no value is at least 1 MiB with time to copy it out and back");
  }
  if (trace_) listener_.say(trace_->foretell(options_.training, planned_.plans, machine_));
  if (planned_.refusal) throw *planned_.refusal;
}

void TrainingRun::run(const std::function<bool()>& stop) {
  if (options_.dry_run) return;
  const int64_t steps = options_.training.steps;
  if (first_step_ == steps) {
    listener_.say(
        fmt::format("the run is finished: its {} steps are done, and the model is in {}; "
                    "with more steps it goes on",
                    steps, checkpoint_->string()));
    return;
  }
  enqueued_ = first_step_;
  for (int64_t step = first_step_; step < steps; ++step) {
    train_step(step, stop());
    after_step(step + 1, stop);
    if (enqueued_ > step + 1 || !stop()) continue;
    checkpoint(step + 1);
    if (trace_) listener_.say("no trace was written: the run stopped before the traced step");
    listener_.stopped(step + 1);
    return;
  }
  listener_.finished();
  checkpoint(steps);
  finish(stop);
}

// Evaluates and writes a sample, after the model is saved.
void TrainingRun::finish(const std::function<bool()>& stop) {
  const int64_t steps = options_.training.steps;
  const auto& batches = options_.final_eval_batches;
  if (batches != 0) {
    const ValidationRows rows = batches
                                    ? validation_rows(*batches)
                                    : ValidationRows(data_->validation(), options_.training.seq);
    const std::optional<double> loss = evaluate(rows, steps, stop);
    if (!loss) {
      return listener_.say(fmt::format("stopped in the final evaluation; the model is in {}",
                                       checkpoint_->string()));
    }
    const int64_t all = data_->validation()->size() - 1;
    listener_.say(fmt::format("validation loss {:.4f} nats a token, over {} targets", *loss,
                              rows.targets() == all
                                  ? fmt::format("all {}", all)
                                  : fmt::format("{} of {}", rows.targets(), all)));
  }
  listener_.say(fmt::format("peak {} bytes, foretold {} bytes", stream_->memory().peak,
                            planned_.foretold.memory.peak));
  if (planned_.foretold.host.peak) {
    listener_.say(fmt::format("host memory {} bytes, foretold {} bytes",
                              trainer_->host_memory().peak, planned_.foretold.host.peak));
  }
  write_sample(steps);
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

void TrainingRun::after_step(int64_t done, const std::function<bool()>& stop) {
  const auto due = [&](int64_t every) { return is_due(every, done); };
  if (due(options_.eval_every) && options_.eval_batches > 0) {
    val_loss_ = evaluate(validation_rows(options_.eval_batches), done, stop);
  }
  if (due(options_.sample_every)) write_sample(done);
  if (due(options_.checkpoint_every)) try_checkpoint(done);
}

ValidationRows TrainingRun::validation_rows(int64_t batches) const {
  return {data_->validation(), options_.training.seq, batches * options_.training.batch};
}

std::optional<double> TrainingRun::evaluate(const ValidationRows& rows, int64_t step,
                                            const std::function<bool()>& stop) {
  struct Stopped {};
  double loss = 0;
  try {
    read_data(step, [&] {
      loss = trainer_->evaluator().mean_loss(rows, [&](int64_t done) {
        listener_.progress({.what = "evaluating",
                            .done = static_cast<size_t>(done),
                            .total = static_cast<size_t>(rows.rows()),
                            .unit = "rows"});
        if (stop()) throw Stopped();
      });
    });
  } catch (const Stopped&) {
    return {};
  }
  log_.write(EvaluationNumbers{.step = step,
                               .loss = loss,
                               .targets = rows.targets(),
                               .whole = rows.targets() + 1 == data_->validation()->size()});
  return loss;
}

void TrainingRun::write_sample(int64_t step) {
  const LongWork writing(listener_, "writing a sample");
  std::vector<int32_t> tokens = start_of_text(*tokenizer_);
  const size_t given = tokens.size();
  Random random(options_.training.seed, static_cast<uint64_t>(step));
  const SampleLength length = sample_length(*tokenizer_);
  Generator(trainer_->model(), *stream_, length.prompt + length.drawn)
      .extend(tokens, length.drawn, {.vocabulary = tokenizer_->vocabulary()}, random);
  listener_.say(fmt::format("--- sample after step {}\n{}\n---", step,
                            tokenizer_->decode(std::span(tokens).subspan(given))));
}

void TrainingRun::checkpoint(int64_t step) {
  {
    const LongWork saving(listener_, "saving");
    save(step);
  }
  if (const auto changes = data_->describe_changes()) listener_.say(*changes);
}

// What cannot be written now may be when the next checkpoint is due.
void TrainingRun::try_checkpoint(int64_t step) {
  try {
    checkpoint(step);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    listener_.say(fmt::format(
        "no checkpoint of step {}: {}; training goes on, and the next is tried at step {}", step,
        e.what(), std::min(step + options_.checkpoint_every, options_.training.steps)));
  }
}

// The last checkpoint, or what the run began with.
std::filesystem::path TrainingRun::model_directory() const {
  if (checkpoint_) return *checkpoint_;
  return has_weights(options_.model) ? ModelFile(options_.model).directory()
                                     : std::filesystem::path();
}

void TrainingRun::save(int64_t step) {
  if (step == last_saved_) return;
  const TrainingConfig& t = options_.training;
  const double loss = trainer_->evaluator().mean_loss({tokens_of(batch_), t.seq, t.batch});
  if (!std::isfinite(loss)) fail_not_finite(step, "the loss of the updated weights is", loss);
  write_checkpoint(*directory_, {.trainer = *trainer_,
                                 .tokenizer = *tokenizer_,
                                 .options = options_,
                                 .step = step,
                                 .data_fingerprint = data_->fingerprint(),
                                 .initial_weights = initial_weights_,
                                 .tape = tape_,
                                 .products = products_,
                                 .model = model_directory()});
  last_saved_ = step;
  checkpoint_ = directory_->latest();
}

void TrainingRun::fail_not_finite(int64_t step, const char* what, double value) {
  if (last_saved_ <= first_step_) {  // what the run began with may be at fault
    if (checkpoint_)
      check_finite_checkpoint(*checkpoint_);
    else if (has_weights(options_.model))
      check_finite(ModelFile(options_.model).tensors());
  }
  const std::string kept = checkpoint_
                               ? sentence("the last good checkpoint is ", checkpoint_->string())
                               : std::string("no checkpoint had been written yet");
  throw Error(ErrorKind::numeric,
              sentence("step ", step, ": ", what, " ", value, ", so training stopped; ", kept,
                       "; a smaller learning rate or a longer warm-up may help"),
              {.settings = {"lr", "warmup"}});
}

}  // namespace spool
