#include "spool/models/training/training_run.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "spool/models/data/data_reader.h"
#include "spool/models/data/find_files.h"
#include "spool/models/families/model_file.h"
#include "spool/models/inference/generator.h"
#include "spool/models/training/run_checkpoint.h"
#include "spool/planner/machine.h"
#include "spool/planner/plan_file.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using nlohmann::json;

bool is_plan(const std::string& file) {
  try {
    (void)load_plan(file);
    return true;
  } catch (const Error&) {
    return false;
  }
}

constexpr int64_t batches_in_between = 20;  // of an evaluation while the run goes on
constexpr int64_t sample_length = 300;      // tokens

// A hash of how many tokens there are and of the tokens, or, if there are very many, of evenly
// spread blocks of them: tells other data apart.
uint64_t fingerprint(const TokenSource& tokens) {
  constexpr int64_t block = 4096, max_hashed = int64_t{1} << 27;
  const int64_t stride = block * (1 + tokens.size() / max_hashed);
  Fnv1a hash;
  hash.add(static_cast<uint64_t>(tokens.size()));
  std::vector<int32_t> some;
  for (int64_t begin = 0; begin < tokens.size(); begin += stride) {
    some.resize(static_cast<size_t>(std::min(block, tokens.size() - begin)));
    tokens.read(begin, some);
    for (const int32_t token : some) hash.add(static_cast<uint64_t>(token));
  }
  return hash.state();
}

}  // namespace

TrainingRun::TrainingRun(RunOptions options, RunListener& listener)
    : options_(std::move(options)), listener_(listener) {
  std::optional<StoredRun> stored;
  if (options_.resume) {
    checkpoint_ = latest_checkpoint(options_.out);
    check_file_setting(checkpoint_.has_value(), options_.out, {"resume"},
                       "there is no checkpoint to resume; begin a run instead");
    stored = read_run(*checkpoint_);
    adopt(options_, stored->configuration);
  } else {
    check_file_setting(!latest_checkpoint(options_.out), options_.out, {"resume", "out"},
                       "already holds a run; resume it, or choose another directory");
  }
  if (!options_.trace.empty()) trace_.emplace(options_.trace);
  open_tokenizer_of_run();
  options_.training.validate();
  open_data();
  if (options_.resume) {
    check_file(stored->data_fingerprint == data_fingerprint_, *checkpoint_ / "run.json",
               "the run was trained on other data than ", data_.training->name(),
               "; give it the same, or start a run of its own");
    first_step_ = last_saved_ = stored->step;
  }
  foretell();
  directory_.emplace(options_.out, options_.keep_checkpoints);
  set_up_trainer();
  open_log();
}

void TrainingRun::set_up_trainer() {
  trainer_.emplace(options_.training, plans_, *stream_);
  if (checkpoint_) {
    load_checkpoint(*checkpoint_, *trainer_);
    listener_.say(fmt::format("resuming at step {} from {}", first_step_, checkpoint_->string()));
  } else if (has_weights(options_.model)) {
    const ModelFile file(options_.model);
    trainer_->initialise_from(file);
    listener_.say(fmt::format("beginning with the weights of {}", file.name()));
  } else {
    trainer_->initialise();
  }
  trainer_->prepare();
}

void TrainingRun::open_log() {
  if (options_.log.empty()) return;
  const json head{{"format", "spool-run"},
                  {"format_version", 1},
                  {"configuration", configuration(options_)},
                  {"foretold_peak_bytes", foretold_.memory.peak}};
  log_ = RunLog(options_.log, head, checkpoint_ ? std::optional(first_step_ + 1) : std::nullopt);
}

TrainingRun::~TrainingRun() = default;

// A checkpoint has its tokenizer with it, and so may weights to begin with.
void TrainingRun::open_tokenizer_of_run() {
  TokenizerChoice& choice = options_.tokenizer;
  if (checkpoint_) {
    choice = choose_tokenizer(choice, *checkpoint_);
  } else if (has_weights(options_.model)) {
    choice = choose_tokenizer(choice, ModelFile(options_.model).directory());
  } else {
    choice = choose_tokenizer(choice);
  }
  tokenizer_ = open_tokenizer(choice);
  if (const auto own = checkpoint_ ? vocabulary_in(*checkpoint_) : std::nullopt) {
    check_setting(same_tokens(*tokenizer_, *open_tokenizer({.name = choice.name, .merges = *own})),
                  {"merges"}, choice.merges.string(), " is another vocabulary than the run's, ",
                  own->string(), "; leave it out to go on");
  }
  int64_t& vocabulary = options_.training.model.vocabulary;
  const bool open =
      !checkpoint_ && !has_weights(options_.model) && !options_.given.contains("vocab");
  if (open) vocabulary = std::max(vocabulary, tokenizer_->vocabulary());
  check_setting(vocabulary >= tokenizer_->vocabulary(), {"vocab"}, "the model's vocabulary of ",
                vocabulary, " is smaller than the tokenizer's, ", tokenizer_->vocabulary());
}

Tokens TrainingRun::open_tokens(const std::vector<std::string>& patterns) const {
  const auto files =
      patterns.empty() ? default_texts(options_.default_texts) : find_files(patterns);
  return DataReader{
      .tokenizer = *tokenizer_,
      .vocabulary = options_.training.model.vocabulary,
      .threads = options_.threads,
      .progress = [this](size_t done, size_t total) { listener_.encoding(done, total); }}
      .open(files);
}

void TrainingRun::open_data() {
  const TrainingConfig& t = options_.training;
  const Tokens all = open_tokens(options_.data);
  data_ =
      split_validation(all, options_.val_data.empty() ? nullptr : open_tokens(options_.val_data));
  data_fingerprint_ = fingerprint(*data_.training) * 31 + fingerprint(*data_.validation);
  batches_.emplace(data_.training, t.seq, t.seed);
  ValidationRows(data_.validation, t.seq);
}

void TrainingRun::foretell() {
  Machine machine = measure_machine(options_.device, options_.training.dtype, options_.threads);
  if (!options_.spill_directory.empty()) {
    machine.disk_bytes_per_second = measure_disk(options_.spill_directory);
  }
  make_plans_of_run(machine);
  plans_.graph = options_.graph;
  plans_.spill_directory = options_.spill_directory;
  plans_.layout = lay_out_step(options_.training, plans_, machine);
  foretold_ = rehearse_training(options_.training, plans_, machine, sample());
  plans_.host_bytes = foretold_.host.peak;
  plans_.disk_bytes = foretold_.disk.peak;
  const size_t budget = options_.memory ? options_.memory : foretold_.memory.peak;
  listener_.say(fmt::format("{} tokens to train on, {} to validate with, from {}",
                            data_.training->size(), data_.validation->size(),
                            data_.training->name()));
  listener_.planned(options_, machine, foretold_, budget);
  if (options_.policy.offload != Offloading::none && !offloads(plans_.step)) {
    listener_.say(
        "  nothing is offloaded: no value is at least 1 MiB with time to copy it out and back");
  }
  if (trace_) listener_.say(trace_->foretell(options_.training, plans_, machine));
  const size_t there_is = device_memory(options_.device);
  if (foretold_.memory.peak > budget) refuse_budget(machine, budget, "the budget is ");
  if (foretold_.memory.peak > there_is) refuse_budget(machine, there_is, "the device has ");
  refuse_host(foretold_.memory.peak);
  stream_ = open_stream(options_.device, budget, options_.threads);
}

void TrainingRun::make_plans_of_run(const Machine& machine) {
  plans_ = make_plans(options_.training, options_.policy, machine);
  if (!options_.plan.empty()) {
    Plan plan = load_plan(options_.plan);
    check_file_setting(plan.chunks == plans_.step.chunks, options_.plan, {"plan", "chunk-loss"},
                       "the plan cuts the loss into other chunks than this run's, of ",
                       options_.training.loss_chunk,
                       " rows; give the number of rows it was made with");
    check_file_setting(!offloads_to_disk(plan) || !options_.spill_directory.empty(), options_.plan,
                       {"offload-to"},
                       "the plan offloads to a disk; say in which directory, as disk:DIRECTORY");
    plans_.step = std::move(plan);
  }
  if (options_.save_plan.empty()) return;
  Plan plan = plans_.step;
  plan.fingerprints = step_fingerprints(options_.training);
  check_file_setting(!std::filesystem::exists(options_.save_plan) || is_plan(options_.save_plan),
                     options_.save_plan, {"save-plan"},
                     "exists already and is not a plan; choose another name");
  save_plan(options_.save_plan, plan);
  listener_.say(fmt::format("the plan is in {}", options_.save_plan));
}

// Throws if what is offloaded does not fit the host.
void TrainingRun::refuse_host(size_t on_device) const {
  const size_t available = device_memory({DeviceType::cpu});
  const bool shared = options_.device.type == DeviceType::cpu;
  const size_t needed = foretold_.host.peak + (shared ? on_device : 0);
  if (foretold_.host.peak == 0 || needed <= available) return;
  throw Error(ErrorKind::memory,
              sentence("this run needs ", format_bytes(foretold_.host.peak), " (",
                       foretold_.host.peak, " bytes) of the host's memory",
                       shared ? " beside the device's " + format_bytes(on_device) : "",
                       ", and the machine has ", format_bytes(available),
                       "; offload less, or to a disk (disk:DIRECTORY), or keep the optimizer's ",
                       "state on the device"),
              {.needed = needed,
               .capacity = available,
               .settings = {"offload", "offload-to", "optimizer-state"}});
}

void TrainingRun::refuse_budget(const Machine& machine, size_t limit, const char* what) const {
  const std::string advice =
      options_.plan.empty() ? batch_that_fits(machine, limit) : "another plan may fit";
  throw Error(
      ErrorKind::memory,
      sentence(what, format_bytes(limit), " (", limit, " bytes), and this run needs ",
               format_bytes(foretold_.memory.peak), " (", foretold_.memory.peak, " bytes); ",
               advice),
      {.needed = foretold_.memory.peak, .capacity = limit, .settings = {"memory", "batch"}});
}

std::string TrainingRun::batch_that_fits(const Machine& machine, size_t limit) const {
  const auto peak_with = [&](int64_t batch) {
    TrainingConfig config = options_.training;
    config.batch = batch;
    TrainingPlans plans = make_plans(config, options_.policy, machine);
    plans.layout = lay_out_step(config, plans, machine);
    return rehearse_training(config, plans, machine, sample()).memory.peak;
  };
  int64_t fits = 0, fails = options_.training.batch;
  while (fails - fits > 1) {
    const int64_t middle = (fits + fails) / 2;
    (peak_with(middle) <= limit ? fits : fails) = middle;
  }
  return fits > 0 ? sentence("a batch of ", fits, " would fit, with a peak of ", peak_with(fits),
                             " bytes")
                  : sentence("even a batch of 1 would take ", format_bytes(peak_with(1)));
}

void TrainingRun::run(const std::function<bool()>& stop) {
  const int64_t steps = options_.training.steps;
  for (int64_t step = first_step_; step < steps; ++step) {
    train_step(step);
    after_step(step + 1);
    if (!stop()) continue;
    save(step + 1);
    if (trace_) listener_.say("no trace was written: the run stopped before the traced step");
    listener_.stopped(step + 1);
    return;
  }
  listener_.finished();
  save(steps);
  const ValidationRows whole(data_.validation, options_.training.seq);
  const double loss = evaluate(whole, steps);
  listener_.say(fmt::format("validation loss {:.4f} nats a token, over all {} targets", loss,
                            whole.targets()));
  listener_.say(fmt::format("peak {} bytes, foretold {} bytes", stream_->memory().peak,
                            foretold_.memory.peak));
  if (foretold_.host.peak) {
    listener_.say(fmt::format("host memory {} bytes, foretold {} bytes",
                              trainer_->host_memory().peak, foretold_.host.peak));
  }
  write_sample(steps);
  listener_.say(fmt::format("the model is in {}", checkpoint_->string()));
}

void TrainingRun::enqueue_step(int64_t step) {
  trainer_->step(step, [&](int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
    batches_->fill(row, tokens, targets);
  });
}

// The second one, in which nothing is done for the first time, or the only one.
void TrainingRun::train_step(int64_t step) {
  const bool traced = trace_ && step == std::min(first_step_ + 1, options_.training.steps - 1);
  const auto start = std::chrono::steady_clock::now();
  if (traced) {
    trace_->measure(*stream_, [&] { enqueue_step(step); });
  } else {
    enqueue_step(step);
  }
  const StepResult result = trainer_->result();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!std::isfinite(result.loss)) stop_not_finite(step + 1, "the loss is", result.loss);
  if (!result.finite) stop_not_finite(step + 1, "the norm of the gradients is", result.grad_norm);
  const double rate = static_cast<double>(options_.training.tokens_per_step()) / took.count();
  const size_t peak = stream_->memory().peak;
  listener_.step({.step = step + 1,
                  .loss = result.loss,
                  .grad_norm = result.grad_norm,
                  .val_loss = val_loss_,
                  .lr = trainer_->learning_rate(step),
                  .seconds = took.count(),
                  .tokens_per_s = rate,
                  .peak_bytes = peak});
  log_.write({{"step", step + 1},
              {"loss", result.loss},
              {"lr", trainer_->learning_rate(step)},
              {"grad_norm", result.grad_norm},
              {"tokens_per_s", rate},
              {"step_ms", took.count() * 1e3},
              {"peak_bytes", peak},
              {"foretold_peak_bytes", foretold_.memory.peak}});
  if (!traced) return;
  listener_.say(trace_->write(step + 1));
  trace_.reset();
}

void TrainingRun::after_step(int64_t done) {
  const auto due = [&](int64_t every) {
    return every > 0 && done % every == 0 && done < options_.training.steps;
  };
  if (due(options_.eval_every)) {
    val_loss_ = evaluate(validation_rows(batches_in_between), done);
  }
  if (due(options_.sample_every)) write_sample(done);
  if (due(options_.checkpoint_every)) save(done);
}

ValidationRows TrainingRun::validation_rows(int64_t batches) const {
  return {data_.validation, options_.training.seq, batches * options_.training.batch};
}

double TrainingRun::loss_over(const ValidationRows& rows) {
  trainer_->evaluator().evaluate(
      rows.rows(), [&](int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
        rows.fill(row, tokens, targets);
      });
  return trainer_->evaluator().loss_sum() / static_cast<double>(rows.targets());
}

double TrainingRun::evaluate(const ValidationRows& rows, int64_t step) {
  const double loss = loss_over(rows);
  log_.write({{"step", step},
              {"val_loss", loss},
              {"val_targets", rows.targets()},
              {"whole", rows.targets() + 1 == data_.validation->size()}});
  return loss;
}

SampleLength TrainingRun::sample() const {
  return {.prompt = static_cast<int64_t>(start_of_text(*tokenizer_).size()),
          .drawn = sample_length};
}

void TrainingRun::write_sample(int64_t step) {
  std::vector<int32_t> tokens = start_of_text(*tokenizer_);
  const size_t given = tokens.size();
  Random random(options_.training.seed, static_cast<uint64_t>(step));
  Generator(trainer_->model(), *stream_)
      .extend(tokens, sample_length, {.vocabulary = tokenizer_->vocabulary()}, random);
  listener_.say(fmt::format("--- sample after step {}\n{}\n---", step,
                            tokenizer_->decode(std::span(tokens).subspan(given))));
}

void TrainingRun::save(int64_t step) {
  if (step == last_saved_) return;
  const double loss = loss_over(validation_rows(/*batches=*/1));
  if (!std::isfinite(loss)) stop_not_finite(step, "the loss of the weights it left is", loss);
  directory_->write(step, [&](const std::filesystem::path& partial) {
    save_checkpoint(partial, *trainer_, *tokenizer_,
                    {{"step", step},
                     {"configuration", configuration(options_)},
                     {"data_fingerprint", data_fingerprint_}});
  });
  last_saved_ = step;
  checkpoint_ = directory_->latest();
}

void TrainingRun::stop_not_finite(int64_t step, const char* what, double value) {
  const std::string kept = checkpoint_
                               ? sentence("the last good checkpoint is ", checkpoint_->string())
                               : std::string("no checkpoint had been written yet");
  throw Error(ErrorKind::numeric,
              sentence("step ", step, ": ", what, " ", value, ", so training stopped; ", kept,
                       "; a smaller learning rate or a longer warm-up may help"),
              {.settings = {"lr", "warmup"}});
}

}  // namespace spool
