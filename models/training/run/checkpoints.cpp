#include "spool/models/training/run/checkpoints.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "spool/models/families/model_file.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/training/run/checkpoint_files.h"
#include "spool/models/training/run/ranks.h"
#include "spool/runtime/trace.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// The first rows of a batch, which are in memory: they can be read when the data cannot.
class BatchRows final : public RowSource {
 public:
  BatchRows(const TokenBatch& batch, int64_t rows) : batch_(batch), rows_(rows) {}
  int64_t rows() const override { return rows_; }
  int64_t targets(int64_t row) const override {
    const auto begin = batch_.targets.begin() + row * batch_.T;
    return batch_.T - std::count(begin, begin + batch_.T, ignored_target);
  }
  void fill(Range rows, TokenBatch& batch) const override {
    batch.clear(rows.size(), batch_.T, batch_.is_packed());
    const int64_t begin = rows.begin * batch_.T,
                  count = std::min(rows_, rows.end) * batch_.T - begin;
    std::copy_n(batch_.tokens.begin() + begin, count, batch.tokens.begin());
    std::copy_n(batch_.targets.begin() + begin, count, batch.targets.begin());
    if (batch.is_packed()) {
      std::copy_n(batch_.positions.begin() + begin, count, batch.positions.begin());
      std::copy_n(batch_.first.begin() + begin, count, batch.first.begin());
    }
    for (int64_t row = rows.begin; row < std::min(rows_, rows.end); ++row) {
      batch.valid += targets(row);
    }
  }

 private:
  const TokenBatch& batch_;
  int64_t rows_;
};

}  // namespace

Checkpoints::Checkpoints(const RunSetup& run, const RunState& state)
    : run_(run),
      state_(state),
      latest_(run.checkpoint),
      last_saved_(latest_ ? run.first_step : -1),
      saved_at_(host_clock()) {}

bool Checkpoints::is_due(int64_t done) const {
  const RunOptions& o = run_.options;
  if (run_.is_due(o.checkpoint_every, done)) return true;
  const bool is_late = run_.ranks ? state_.saves : is_time();
  return is_late && state_.enqueued <= done && done < run_.steps();
}

bool Checkpoints::is_time() const {
  const double minutes = run_.options.checkpoint_minutes;
  return minutes > 0 && host_clock() - saved_at_ >= 60 * minutes;
}

bool Checkpoints::has_nothing_to_save() const { return state_.done == run_.first_step && !latest_; }

bool Checkpoints::is_best() const {
  const auto& best = state_.evaluations.best;
  return run_.options.keep_best && best && best->step == state_.done;
}

// The others learn that rank 0 could not save, and leave the error to it.
void Checkpoints::write() {
  if (!write_if_possible()) throw RankEnded("rank 0 could not write a checkpoint");
}

bool Checkpoints::write_if_possible() {
  saved_at_ = host_clock();
  {
    const LongWork saving(*run_.listeners, "saving");
    if (!save()) return false;
  }
  if (run_.writes() && is_best()) run_.directory->point_best_to(state_.done);
  run_.listeners->flush(run_.stream->memory().peak);
  tell_changed_data();
  return true;
}

bool Checkpoints::save() {
  if (state_.done == last_saved_) return true;
  const BatchRows rows(state_.batch, run_.options.training.batch);
  const double loss = targets_of(rows) > 0 ? run_.trainer->evaluator().mean_loss(rows) : 0;
  if (!std::isfinite(loss)) {
    fail_not_finite(state_.done, "the loss of the updated weights is", loss);
  }
  const bool is_done = run_.trainer->share_state([&] { write_files(); });
  if (!is_done) return false;
  last_saved_ = state_.done;
  latest_ = latest_checkpoint(run_.options.out);
  tell_ranks(run_, state_.done);
  return true;
}

void Checkpoints::write_files() const {
  write_checkpoint(*run_.directory, {.trainer = *run_.trainer,
                                     .tokenizer = *run_.tokenizer,
                                     .options = run_.options,
                                     .step = state_.done,
                                     .data_fingerprint = run_.data->fingerprint(),
                                     .initial_weights = run_.initial_weights,
                                     .tape = run_.tape,
                                     .evaluations = state_.evaluations,
                                     .products = run_.products,
                                     .model = model_directory(),
                                     .base = run_.base,
                                     .stop_tokens = run_.stop_tokens});
}

// The last checkpoint, or what the run began with.
fs::path Checkpoints::model_directory() const {
  if (latest_) return *latest_;
  const bool has_own = has_weights(run_.options.model) || run_.data->has_examples();
  return has_own ? directory_of_run(run_.options) : fs::path();
}

void Checkpoints::tell_changed_data() {
  std::vector<std::string> changed = run_.data->changed_files();
  std::erase_if(changed, [&](const std::string& file) { return !changed_.insert(file).second; });
  if (changed.empty()) return;
  const size_t others = changed.size() - 1;
  run_.listeners->say(fmt::format(
      "{} changed since the run began: steps read what is there now, and resuming needs the data "
      "as it was",
      others ? fmt::format("{} and {} more files have", changed[0], others) : changed[0] + " has"));
}

void Checkpoints::try_write() {
  try {
    write_if_possible();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    run_.listeners->warn(
        fmt::format("no checkpoint of step {}: {}; training goes on, and the next is tried {}",
                    state_.done, e.what(), next()));
  }
}

std::string Checkpoints::next() const {
  const RunOptions& o = run_.options;
  const int64_t every = o.checkpoint_every, steps = run_.steps();
  const int64_t step = every > 0 ? std::min((state_.done / every + 1) * every, steps) : steps;
  std::string when = fmt::format("at step {}", step);
  if (o.checkpoint_minutes > 0) when += fmt::format(" or in {:g} minutes", o.checkpoint_minutes);
  if (o.keep_best) when += " or after a better evaluation";
  return when.find(" or ") == std::string::npos ? when : when + ", whichever is first";
}

void Checkpoints::read_data(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file || has_nothing_to_save()) throw;
    write();
    ErrorFields fields = error.fields();
    fields.settings.emplace_back("resume");
    throw Error(error.kind(),
                sentence(error.what(), "; the run is saved after step ", state_.done, ", in ",
                         latest_->string(), ", and can be resumed with the data as it was"),
                fields);
  }
}

void Checkpoints::end_if_unreadable(const std::exception_ptr& own) {
  const std::string word = own ? "unreadable" : "";
  const auto all = run_.ranks ? run_.ranks->gather("data", word) : std::vector{word};
  const auto first = std::ranges::find(all, "unreadable");
  if (first == all.end()) return;
  const int64_t rank = first - all.begin();
  if (!run_.ranks || run_.ranks->rank() == rank) read_data([&] { std::rethrow_exception(own); });
  if (!has_nothing_to_save()) write();
  throw RankEnded(sentence("rank ", rank, " cannot read its data"));
}

void Checkpoints::store_evaluations(bool is_best) {
  if (!run_.writes()) return;
  try {
    spool::store_evaluations(*latest_, state_.evaluations);
    if (is_best && run_.options.keep_best) run_.directory->point_best_to(state_.done);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    run_.listeners->warn(fmt::format(
        "the evaluation after step {} is not stored: {}; training goes on", state_.done, e.what()));
  }
}

void Checkpoints::tell_best() const {
  const auto& best = state_.evaluations.best;
  if (!run_.writes() || !run_.options.keep_best || !best) return;
  const auto link = run_.directory->point_best_to(best->step);
  run_.listeners->say(fmt::format(
      "the best validation loss between steps was {:.4f}, after step {}; {}", best->loss,
      best->step,
      link ? "that model is in " + link->string() : "no checkpoint of that step is there"));
}

void Checkpoints::fail_not_finite(int64_t step, const char* what, double value) const {
  if (last_saved_ <= run_.first_step) {  // what the run began with may be at fault
    if (latest_)
      check_finite_checkpoint(*latest_);
    else if (has_weights(run_.options.model))
      ModelFile(paths_of(run_.options)).check_finite();
  }
  run_.listeners->flush(run_.stream->memory().peak);
  const std::string kept = latest_ ? sentence("the last good checkpoint is ", latest_->string())
                                   : std::string("no checkpoint had been written yet");
  throw Error(ErrorKind::numeric,
              sentence("step ", step, ": ", what, " ", value, ", so training stopped; ", kept,
                       "; a smaller learning rate or a longer warm-up may help"),
              {.settings = {"lr", "warmup"}});
}

}  // namespace spool
