#include "spool/models/training_run.h"

#include <spdlog/fmt/fmt.h>

#include <nlohmann/json.hpp>

#include "spool/models/generator.h"
#include "spool/models/run_checkpoint.h"
#include "spool/models/texts.h"
#include "spool/planner/machine.h"
#include "spool/runtime/units.h"

#ifndef SPOOL_SOURCE_DIR
#define SPOOL_SOURCE_DIR "."
#endif

namespace spool {
namespace {

using nlohmann::json;

constexpr int64_t validation_rows_in_between = 20;  // batches of them

// FNV-1a over tokens spread over the data, and how many there are: tells other data apart.
uint64_t fingerprint(const TokenSource& tokens) {
  constexpr int64_t samples = 4096;
  uint64_t hash = 14695981039346656037u;
  const auto mix = [&](uint64_t x) { hash = (hash ^ x) * 1099511628211u; };
  mix(static_cast<uint64_t>(tokens.size()));
  for (int64_t i = 0; i < std::min(samples, tokens.size()); ++i) {
    int32_t token = 0;
    tokens.read(tokens.size() / std::min(samples, tokens.size()) * i, {&token, 1});
    mix(static_cast<uint64_t>(token));
  }
  return hash;
}

Tokens open_tokens(const std::vector<std::string>& patterns) {
  return open_texts(find_files(patterns));
}

}  // namespace

TrainingRun::TrainingRun(RunOptions options)
    : options_(std::move(options)),
      tokenizer_(make_tokenizer("bytes")),
      progress_(options_.training.steps) {
  json stored;
  if (options_.resume) {
    checkpoint_ = latest_checkpoint(options_.out);
    check_file(checkpoint_.has_value(), options_.out,
               "there is no checkpoint to resume; leave --resume out to begin");
    stored = read_run(*checkpoint_);
    adopt(options_, stored["configuration"], *checkpoint_ / "run.json");
    progress_ = Progress(options_.training.steps);
  } else {
    check_file(!latest_checkpoint(options_.out), options_.out,
               "already holds a run; go on with --resume, or choose another --out");
  }
  options_.training.validate();
  open_data();
  if (options_.resume) {
    check_file(stored.value("data_fingerprint", uint64_t{0}) == data_fingerprint_,
               *checkpoint_ / "run.json", "the run was trained on other data than ",
               data_.training->name(), "; give it the same, or start a run of its own");
  }
  foretell();
  directory_.emplace(options_.out, options_.keep_checkpoints);
  trainer_.emplace(options_.training, plans_, *stream_);
  if (checkpoint_) {
    load_checkpoint(*checkpoint_, *trainer_);
    first_step_ = last_saved_ = stored["step"].get<int64_t>();
    progress_.say(fmt::format("resuming at step {} from {}", first_step_, checkpoint_->string()));
  } else {
    trainer_->initialise();
  }
  const json head{{"format", "spool-run"},
                  {"format_version", 1},
                  {"configuration", configuration(options_)},
                  {"foretold_peak_bytes", foretold_.memory.peak}};
  if (!options_.log.empty()) {
    log_ = RunLog(options_.log, head, checkpoint_ ? std::optional(first_step_ + 1) : std::nullopt);
  }
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::open_data() {
  const TrainingConfig& t = options_.training;
  check(t.model.vocabulary >= tokenizer_->vocabulary(), "--vocab ", t.model.vocabulary,
        " is smaller than the tokenizer's vocabulary of ", tokenizer_->vocabulary());
  const Tokens all = options_.data.empty() ? open_texts(default_texts(SPOOL_SOURCE_DIR))
                                           : open_tokens(options_.data);
  data_ =
      split_validation(all, options_.val_data.empty() ? nullptr : open_tokens(options_.val_data));
  data_fingerprint_ = fingerprint(*data_.training) * 31 + fingerprint(*data_.validation);
  batches_.emplace(data_.training, t.seq, t.seed);
  ValidationRows(data_.validation, t.seq);
}

void TrainingRun::foretell() {
  const Machine machine = measure_machine(options_.device, options_.threads);
  plans_ = make_plans(options_.training);
  foretold_ = rehearse_training(options_.training, plans_, machine, /*with_text=*/true);
  const size_t budget = options_.memory ? options_.memory : foretold_.memory.peak;
  progress_.say(fmt::format("{} tokens to train on, {} to validate with, from {}",
                            data_.training->size(), data_.validation->size(),
                            data_.training->name()));
  progress_.say(memory_table(options_, machine, foretold_, budget));
  if (foretold_.memory.peak > budget) refuse_budget(machine);
  stream_ = open_stream(options_.device, budget, options_.threads);
}

void TrainingRun::refuse_budget(const Machine& machine) const {
  const auto peak_with = [&](int64_t batch) {
    TrainingConfig config = options_.training;
    config.batch = batch;
    return rehearse_training(config, make_plans(config), machine, /*with_text=*/true).memory.peak;
  };
  int64_t fits = 0, fails = options_.training.batch;
  while (fails - fits > 1) {
    const int64_t middle = (fits + fails) / 2;
    (peak_with(middle) <= options_.memory ? fits : fails) = middle;
  }
  const std::string advice =
      fits > 0
          ? sentence("--batch ", fits, " would fit, with a peak of ", peak_with(fits), " bytes")
          : sentence("even --batch 1 would take ", format_bytes(peak_with(1)));
  throw Error(ErrorKind::memory,
              sentence("--memory is ", format_bytes(options_.memory), " (", options_.memory,
                       " bytes), and this run needs ", format_bytes(foretold_.memory.peak), " (",
                       foretold_.memory.peak, " bytes); ", advice),
              {.needed = foretold_.memory.peak, .capacity = options_.memory, .op = {}, .file = {}});
}

void TrainingRun::run(const std::function<bool()>& stop) {
  const int64_t steps = options_.training.steps;
  if (first_step_ >= steps) {
    progress_.say(fmt::format("the run is complete: it has {} of {} steps", first_step_, steps));
    return;
  }
  for (int64_t step = first_step_; step < steps; ++step) {
    train_step(step);
    if (stop()) {
      save(step + 1);
      progress_.finish();
      progress_.say(fmt::format("stopped after step {}; go on with --resume", step + 1));
      return;
    }
    after_step(step + 1);
  }
  progress_.finish();
  save(steps);
  const ValidationRows whole(data_.validation, options_.training.seq);
  const double loss = evaluate(whole.rows(), steps, /*whole=*/true);
  progress_.say(fmt::format("validation loss {:.4f} nats a token, over all {} targets", loss,
                            whole.targets()));
  progress_.say(fmt::format("peak {} bytes, foretold {} bytes", stream_->memory().peak,
                            foretold_.memory.peak));
  write_sample(steps);
  progress_.say(fmt::format("the model is in {}", checkpoint_->string()));
}

void TrainingRun::train_step(int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  trainer_->step(step, [&](int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
    batches_->fill(row, tokens, targets);
  });
  const StepResult result = trainer_->result();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!result.finite) stop_not_finite(step + 1, result);
  const double rate = static_cast<double>(options_.training.tokens_per_step()) / took.count();
  const size_t peak = stream_->memory().peak;
  progress_.step({.step = step + 1,
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
}

void TrainingRun::after_step(int64_t done) {
  const auto due = [&](int64_t every) {
    return every > 0 && done % every == 0 && done < options_.training.steps;
  };
  if (due(options_.eval_every)) {
    val_loss_ = evaluate(validation_rows_in_between * options_.training.batch, done, false);
  }
  if (due(options_.sample_every)) write_sample(done);
  if (due(options_.checkpoint_every)) save(done);
}

double TrainingRun::evaluate(int64_t rows, int64_t step, bool whole) {
  const ValidationRows validation(data_.validation, options_.training.seq,
                                  whole ? ValidationRows::all : rows);
  trainer_->evaluate(validation.rows(),
                     [&](int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
                       validation.fill(row, tokens, targets);
                     });
  const double loss = trainer_->loss_sum() / static_cast<double>(validation.targets());
  log_.write({{"step", step},
              {"val_loss", loss},
              {"val_targets", validation.targets()},
              {"whole", whole}});
  return loss;
}

void TrainingRun::write_sample(int64_t step) {
  constexpr int64_t length = 300;
  std::vector<int32_t> tokens;
  const std::string_view start = "\n";
  tokenizer_->encode(std::as_bytes(std::span(start.data(), start.size())), tokens);
  Random random(options_.training.seed, static_cast<uint64_t>(step));
  Generator(trainer_->model(), *stream_)
      .extend(tokens, length, {.vocabulary = tokenizer_->vocabulary()}, random);
  progress_.say(fmt::format("--- sample after step {}{}\n---", step, tokenizer_->decode(tokens)));
}

void TrainingRun::save(int64_t step) {
  if (step == last_saved_) return;
  directory_->write(step, [&](const std::filesystem::path& partial) {
    save_checkpoint(partial, *trainer_,
                    {{"step", step},
                     {"configuration", configuration(options_)},
                     {"data_fingerprint", data_fingerprint_},
                     {"tokenizer", tokenizer_->name()}});
  });
  last_saved_ = step;
  checkpoint_ = directory_->latest();
}

void TrainingRun::stop_not_finite(int64_t step, const StepResult& result) const {
  const std::string kept = checkpoint_
                               ? sentence("the last good checkpoint is ", checkpoint_->string())
                               : std::string("no checkpoint had been written yet");
  fail(ErrorKind::numeric, "step ", step, ": the loss is ", result.loss,
       " and the norm of the gradients ", result.grad_norm, ", so training stopped; ", kept,
       "; a smaller --lr or a longer --warmup may help");
}

}  // namespace spool
