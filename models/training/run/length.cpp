#include "spool/models/training/run/length.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "spool/models/training/settings/setting.h"
#include "spool/models/training/settings/setting_checks.h"

namespace spool {

namespace {

std::string epochs_in_words(double epochs, int64_t steps) {
  return fmt::format("{} epoch{} {} step{}", epochs, epochs == 1 ? " is" : "s are", steps,
                     steps == 1 ? "" : "s");
}

}  // namespace

void validate_before_data(const RunOptions& o) {
  const bool is_known = o.resume || o.given.contains("steps") || !names_examples(o);
  TrainingConfig config = o.training;
  if (!is_known) {
    config.steps = largest_count;
    config.warmup = std::min<int64_t>(config.warmup, 0);
  }
  config.validate();
}

void settle_length(RunOptions& o, const RunData& data) {
  constexpr double usual_epochs = 3;
  if (!data.has_examples()) return;
  const bool is_given = o.resume || o.given.contains("steps");
  if (!o.epochs && !is_given) o.epochs = usual_epochs;
  if (!o.epochs) return;
  constexpr double rounding = 1e-9;  // of a product that is whole
  const auto rows = static_cast<double>(data.training().rows());
  const double steps =
      std::ceil(*o.epochs * rows / static_cast<double>(o.training.rows_per_step()) - rounding);
  check_setting(steps <= static_cast<double>(largest_count), {"epochs"}, format_number(*o.epochs),
                " epochs of ", data.training().rows(), " rows are more than ", largest_count,
                " steps; give fewer");
  const auto count = std::max<int64_t>(static_cast<int64_t>(steps), 1);
  check_setting(!o.resume || count >= o.training.steps, {"epochs"}, "the run has ",
                o.training.steps, " steps, and ", epochs_in_words(*o.epochs, count),
                "; a run that resumes may become longer, not shorter");
  o.training.steps = count;
  if (!o.resume && !o.given.contains("warmup")) run_setting("warmup").reset(o);
}

std::string describe_length(const RunOptions& o) {
  constexpr int64_t few = 30;
  if (!o.epochs) return {};
  const std::string words = epochs_in_words(*o.epochs, o.training.steps);
  if (o.training.steps >= few) return words;
  return words +
         ", which are few to learn from: more epochs, shorter rows or fewer of them a step "
         "make more";
}

}  // namespace spool
