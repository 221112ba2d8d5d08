#include "spool/models/training/training_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "spool/runtime/integer.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

constexpr int64_t largest_extent = std::numeric_limits<int32_t>::max();

void check_positive(const char* key, const char* words, int64_t n) {
  check_setting(n > 0 && n <= largest_extent, {key}, words, " is ", n,
                ", and must be between 1 and ", largest_extent);
}

void check_chunk(const char* key, const char* of, int64_t rows) {
  check_setting(rows >= 0 && rows <= largest_extent, {key}, "the rows of a chunk of ", of,
                " must be between 0 (all rows) and ", largest_extent, ", not ", rows);
}

void validate_batch(const TrainingConfig& c) {
  check_positive("batch", "the number of rows of a micro-batch", c.batch);
  check_positive("seq", "the number of tokens of a row", c.seq);
  check_positive("accumulate", "the number of micro-batches of a step", c.accumulate);
  check_positive("steps", "the number of steps", c.steps);
  check_setting(c.seq <= c.model.shape().context, {"seq", "context"}, "rows of ", c.seq,
                " tokens are beyond the model's context of ", c.model.shape().context,
                "; use shorter rows or a larger context");
  check_setting(c.batch * c.seq <= largest_extent, {"batch", "seq", "accumulate"}, c.batch,
                " rows of ", c.seq, " tokens are too many for one micro-batch, which has at most ",
                largest_extent, " tokens; use fewer rows and more micro-batches");
  check_chunk("chunk-loss", "the loss", c.chunks.loss_rows);
  check_chunk("chunk-mlp", "an MLP", c.chunks.mlp_rows);
}

void validate_learning_rate(const TrainingConfig& c) {
  check_setting(c.warmup >= 0 && c.warmup <= c.steps, {"warmup"}, "a warm-up of ", c.warmup,
                " steps is not between 0 and the ", c.steps, " steps of the run");
  check_setting(std::isfinite(c.lr) && c.lr > 0, {"lr"},
                "the learning rate must be a finite number above 0, not ", format_number(c.lr));
  check_setting(c.min_lr >= 0 && c.min_lr <= c.lr, {"min-lr"},
                "the last learning rate must be between 0 and the highest, ", format_number(c.lr),
                ", not ", format_number(c.min_lr));
  check_setting(c.decay_share > 0 && c.decay_share <= 1, {"decay-share"},
                "the share of the steps in which the learning rate decays must be above 0 and at "
                "most 1, not ",
                format_number(c.decay_share));
  const int64_t decay = c.learning_rate().decay;
  check_setting(c.schedule != LrSchedule::wsd || c.warmup + decay <= c.steps,
                {"warmup", "decay-share"}, "a warm-up of ", c.warmup, " steps and a decay of ",
                decay, " are more than the ", c.steps, " steps of the run");
}

void validate_optimizer(const TrainingConfig& c) {
  check_setting(c.dropout >= 0 && c.dropout < 1, {"dropout"},
                "the probability of dropout must be in [0, 1), not ",
                format_number(as_written(c.dropout)));
  check_setting(c.optimizer.beta1 >= 0 && c.optimizer.beta1 < 1, {"beta1"},
                "AdamW's beta1 must be in [0, 1), not ", format_number(c.optimizer.beta1));
  check_setting(c.optimizer.beta2 >= 0 && c.optimizer.beta2 < 1, {"beta2"},
                "AdamW's beta2 must be in [0, 1), not ", format_number(c.optimizer.beta2));
  constexpr double smallest = std::numeric_limits<float>::min();
  check_setting(std::isfinite(c.optimizer.eps) && c.optimizer.eps >= smallest, {"adam-epsilon"},
                "AdamW's epsilon must be a finite number, at least ", smallest,
                ", the smallest that its arithmetic in f32 keeps exactly, not ",
                format_number(c.optimizer.eps));
  check_setting(std::isfinite(c.optimizer.decay) && c.optimizer.decay >= 0, {"weight-decay"},
                "the weight decay must be a finite number from 0 on, not ",
                format_number(c.optimizer.decay));
  check_setting(c.lr * c.optimizer.decay < 1, {"lr", "weight-decay"}, "a learning rate of ",
                format_number(c.lr), " with a weight decay of ", format_number(c.optimizer.decay),
                " is too large: their product must be below 1");
  check_setting(std::isfinite(c.optimizer.clip) && c.optimizer.clip >= 0, {"clip"},
                "the maximum norm of the gradients must be 0 (no limit) or more, not ",
                format_number(c.optimizer.clip));
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
  return {.dtype = dtype, .accumulate = accumulate, .seed = seed, .optimizer = optimizer};
}

ChunkRows TrainingConfig::evaluation_rows() const {
  ChunkRows rows{.loss = chunks.loss_rows, .mlp = chunks.mlp_rows};
  if (chunks.nodes.empty()) return rows;
  const int max = std::ranges::max(chunks.nodes, {}, &NodesInChunks::chunks).chunks;
  rows.mlp = ceil_div(batch * seq, int64_t{max});
  return rows;
}

void TrainingConfig::validate() const {
  model.validate();
  validate_batch(*this);
  validate_learning_rate(*this);
  validate_optimizer(*this);
  check_setting(dtype == DType::f32 || dtype == DType::bf16, {"dtype"},
                "a model trains in f32 or bf16, not in ", name(dtype));
  check_setting(optimizer.rounding == Rounding::nearest || dtype == DType::bf16,
                {"rounding", "dtype"}, name(optimizer.rounding),
                " rounding is for bf16, where it makes f32 masters unnecessary, not for ",
                name(dtype));
}

}  // namespace spool
