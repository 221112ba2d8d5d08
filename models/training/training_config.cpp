#include "spool/models/training/training_config.h"

#include <algorithm>
#include <cmath>

#include "spool/models/training/settings/setting.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

void validate_rows(const TrainingConfig& c) {
  check_setting(c.seq <= c.model.shape().context, {"seq", "context"}, "rows of ", c.seq,
                " tokens are beyond the model's context of ", c.model.shape().context,
                "; use shorter rows or a larger context");
  check_setting(c.batch * c.seq <= largest_count, {"batch", "seq", "accumulate"}, c.batch,
                " rows of ", c.seq, " tokens are too many for one micro-batch, which has at most ",
                largest_count, " tokens; use fewer rows and more micro-batches");
}

// "1, 2 or 4"
std::string divisors_in_words(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t i = 1; i <= n && all.size() < 12; ++i) {
    if (n % i == 0) all.push_back(i);
  }
  std::string words;
  for (size_t i = 0; i < all.size(); ++i) {
    words += sentence(i == 0 ? "" : i + 1 == all.size() ? " or " : ", ", all[i]);
  }
  return words;
}

void validate_ranks(const TrainingConfig& c) {
  check_setting(c.accumulate % c.replicas() == 0, {"accumulate", "ranks"}, "this run has ",
                c.accumulate, " micro-batches a step, so ", divisors_in_words(c.accumulate),
                c.neighbours() > 1 ? " groups of ranks" : " ranks", " can compute it, not ",
                c.replicas());
}

void validate_schedule(const TrainingConfig& c) {
  check_setting(c.warmup >= 0 && c.warmup <= c.steps, {"warmup"}, "a warm-up of ", c.warmup,
                " steps is not between 0 and the ", c.steps, " steps of the run");
  check_setting(c.min_lr >= 0 && c.min_lr <= c.lr, {"min-lr"},
                "the last learning rate must be between 0 and the highest, ", format_number(c.lr),
                ", not ", format_number(c.min_lr));
  const int64_t decay = c.learning_rate().decay;
  check_setting(c.schedule != LrSchedule::wsd || c.warmup + decay <= c.steps,
                {"warmup", "decay-share"}, "a warm-up of ", c.warmup, " steps and a decay of ",
                decay, " are more than the ", c.steps, " steps of the run");
}

void validate_optimizer(const TrainingConfig& c) {
  check_setting(c.lr * c.optimizer.decay < 1, {"lr", "weight-decay"}, "a learning rate of ",
                format_number(c.lr), " with a weight decay of ", format_number(c.optimizer.decay),
                " is too large: their product must be below 1");
  check_setting(c.optimizer.rounding == Rounding::nearest || c.dtype == DType::bf16,
                {"rounding", "dtype"}, name(c.optimizer.rounding),
                " rounding is for bf16, where it makes f32 masters unnecessary, not for ",
                name(c.dtype));
}

}  // namespace

LearningRate TrainingConfig::learning_rate() const {
  const double decay = std::round(decay_share * static_cast<double>(steps));
  return {.schedule = schedule,
          .peak = lr,
          .floor = min_lr,
          .warmup = warmup,
          .steps = steps,
          .decay = std::max<int64_t>(1, static_cast<int64_t>(decay))};
}

StepConfig TrainingConfig::step() const {
  return {.dtype = dtype,
          .accumulate = accumulate,
          .ranks = ranks,
          .neighbours = neighbours(),
          .zero = zero,
          .seed = seed,
          .optimizer = optimizer};
}

void TrainingConfig::validate() const {
  model.validate();
  const RunOptions options{.training = *this};
  for (const Setting& s : run_settings()) {
    if (has_numbers(s.kind)) s.check(options);
  }
  validate_rows(*this);
  validate_ranks(*this);
  validate_schedule(*this);
  validate_optimizer(*this);
}

}  // namespace spool
