// What a TrainingRun does between its steps: evaluations, samples and checkpoints.

#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "spool/models/families/model_file.h"
#include "spool/models/inference/generator.h"
#include "spool/models/tokenizers/utf8.h"
#include "spool/models/training/run/tokenizer.h"
#include "spool/models/training/training_run.h"
#include "spool/runtime/trace.h"

namespace spool {

void TrainingRun::after_step(int64_t done, const std::function<bool()>& stop) {
  const auto due = [&](int64_t every) { return is_due(every, done); };
  const bool evaluates = due(options_.eval_every) && options_.eval_batches > 0;
  const bool best = evaluates && evaluate_between_steps(done, stop);
  if (due(options_.sample_every)) write_sample(done);
  const bool is_time = is_time_to_save() && enqueued_ == done && done < options_.training.steps;
  if (due(options_.checkpoint_every) || is_time || (best && options_.keep_best)) {
    try_checkpoint(done);
  }
}

// Whether the loss is the best so far.
bool TrainingRun::evaluate_between_steps(int64_t done, const std::function<bool()>& stop) {
  const auto loss = evaluate(validation_rows(options_.eval_batches), done, stop);
  return loss && evaluations_.add({.step = done, .loss = *loss});
}

// Whether a run that never stopped has an evaluation where this one resumes, and this one lacks it:
// a stop cut it short, or the run has become longer.
bool TrainingRun::owes_evaluation() const {
  const bool ends = options_.keep_best && first_step_ == options_.training.steps;
  const bool evaluates =
      options_.eval_batches > 0 && (ends || is_due(options_.eval_every, first_step_));
  return evaluates && first_step_ > 0 && !evaluations_.ends_at(first_step_);
}

// Returns false if stop() is true meanwhile.
bool TrainingRun::make_up_evaluation(const std::function<bool()>& stop) {
  const bool best = evaluate_between_steps(first_step_, stop);
  if (!evaluations_.ends_at(first_step_)) return false;
  try {
    store_evaluations(*checkpoint_, evaluations_);
    if (best && options_.keep_best) directory_->point_best_to(first_step_);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    listener_.warn(fmt::format("the evaluation after step {} is not stored: {}; training goes on",
                               first_step_, e.what()));
  }
  return true;
}

bool TrainingRun::is_out_of_patience() const {
  return options_.patience > 0 && evaluations_.since_best >= options_.patience;
}

std::string TrainingRun::lost_patience() const {
  const auto& best = evaluations_.best;
  const std::string than =
      best ? fmt::format("that of step {}, {:.4f}", best->step, best->loss) : "a finite one";
  return fmt::format("after step {}: in {} evaluations no validation loss was better than {}",
                     evaluations_.last->step, evaluations_.since_best, than);
}

void TrainingRun::say_where_the_best_is() {
  if (!options_.keep_best || !evaluations_.best) return;
  const auto& best = *evaluations_.best;
  const auto link = directory_->point_best_to(best.step);
  listener_.say(fmt::format(
      "the best validation loss between steps was {:.4f}, after step {}; {}", best.loss, best.step,
      link ? "that model is in " + link->string() : "no checkpoint of that step is there"));
}

bool TrainingRun::is_time_to_save() const {
  return options_.checkpoint_minutes > 0 &&
         host_clock() - saved_at_ >= 60 * options_.checkpoint_minutes;
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
  const EvaluationNumbers numbers{.step = step,
                                  .loss = loss,
                                  .targets = rows.targets(),
                                  .whole = rows.targets() + 1 == data_->validation()->size()};
  log_.write(numbers);
  if (report_) report_->add(numbers);
  return loss;
}

void TrainingRun::write_sample(int64_t step) {
  if (!options_.sample) return;
  const LongWork writing(listener_, "writing a sample");
  std::vector<int32_t> tokens = sample_.prompt;
  Random random(options_.training.seed, static_cast<uint64_t>(step));
  const SampleLength length = sample_.length;
  Generator(trainer_->model(), *stream_, length.prompt + length.drawn)
      .extend(tokens, length.drawn,
              {.vocabulary = tokenizer_->vocabulary(), .stop_tokens = sample_.stop_tokens}, random);
  const std::string message =
      sample_.message.empty() ? std::string() : fmt::format("> {}\n", sample_.message);
  const std::string text = tokenizer_->decode(std::span(tokens).subspan(sample_.prompt.size()));
  listener_.say(fmt::format("--- sample after step {}\n{}{}\n---", step, message,
                            from_character_to_character(text)));
}

void TrainingRun::checkpoint(int64_t step) {
  saved_at_ = host_clock();
  {
    const LongWork saving(listener_, "saving");
    save(step);
  }
  if (options_.keep_best && evaluations_.best && evaluations_.best->step == step) {
    directory_->point_best_to(step);
  }
  write_report();
  if (const auto changes = data_->describe_changes()) listener_.say(*changes);
}

// Before the run is refused, too.
void TrainingRun::open_report(RunPlanner& planner) {
  if (options_.report.empty()) return;
  const int64_t steps = options_.training.steps;
  {
    const LongWork planning(listener_, "planning for other budgets");
    Frontier frontier;
    if (!planned_.refusal) {
      frontier = planner.steps().frontier();
      frontier.policies = planner.steps().policies();
    }
    report_.emplace(options_, planned_, machine_, frontier, listener_);
  }
  if (options_.resume) report_->resume_after(first_step_);
  bool is_written = true;
  if (options_.dry_run || planned_.refusal) {
    report_->write_plan(steps);
  } else {
    is_written = report_->write(steps);
  }
  if (is_written) listener_.say(fmt::format("the report is in {}", options_.report));
}

void TrainingRun::write_report() {
  if (!report_) return;
  report_->add_peak(stream_->memory().peak);
  report_->write(options_.training.steps);
}

// What cannot be written now may be when the next checkpoint is due.
void TrainingRun::try_checkpoint(int64_t step) {
  try {
    checkpoint(step);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    listener_.warn(
        fmt::format("no checkpoint of step {}: {}; training goes on, and the next is tried {}",
                    step, e.what(), next_checkpoint(step)));
  }
}

std::string TrainingRun::next_checkpoint(int64_t step) const {
  const int64_t every = options_.checkpoint_every, steps = options_.training.steps;
  const int64_t next = every > 0 ? std::min((step / every + 1) * every, steps) : steps;
  std::string when = fmt::format("at step {}", next);
  if (options_.checkpoint_minutes > 0) {
    when += fmt::format(" or in {:g} minutes", options_.checkpoint_minutes);
  }
  if (options_.keep_best) when += " or after a better evaluation";
  return when.find(" or ") == std::string::npos ? when : when + ", whichever is first";
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
                                 .evaluations = evaluations_,
                                 .products = products_,
                                 .model = model_directory()});
  last_saved_ = step;
  checkpoint_ = directory_->latest();
}

}  // namespace spool
