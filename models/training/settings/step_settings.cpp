// The settings of what a step computes, whose values run.json has as JSON.

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

int64_t tokens_of_row(const RunOptions& o) {
  const auto preset = model_preset(o.model);
  const ModelConfig& model = o.training.model;
  return std::min({preset ? preset->config.shape().context : model.shape().context,
                   training_defaults(o).longest_row, model.shape().context});
}

int64_t warmup_steps(const RunOptions& o) {
  const double share = training_defaults(o).warmup;
  return static_cast<int64_t>(share * static_cast<double>(o.training.steps));
}

// The model's, or as many more as ranks can share.
int64_t micro_batches(const RunOptions& o) {
  return round_up(usual_micro_batches(o), int64_t{o.training.replicas()});
}
int64_t rows_of_logits(const RunOptions& o) { return training_defaults(o).loss_chunk; }
double last_lr(const RunOptions& o) { return rounded_to_decimals(o.training.lr / 10); }

std::string rule_of_epsilon() {
  constexpr double smallest = std::numeric_limits<float>::min();
  return sentence("AdamW's epsilon must be a finite number, at least ", smallest,
                  ", the smallest that its arithmetic in f32 keeps exactly");
}

}  // namespace

namespace settings {

const Settings step_table{
    {"batch", &TrainingConfig::batch, "Rows per micro-batch",
     positive("the number of rows of a micro-batch"), numbers, of_model(&TrainingDefaults::batch)},
    {"seq", &TrainingConfig::seq,
     "Tokens per row; by default {context}, or less where that is long",
     positive("the number of tokens of a row"), numbers, computed(tokens_of_row)},
    {"accumulate", &TrainingConfig::accumulate,
     "Micro-batches per step; by default the model's, or 1 of examples",
     positive("the number of micro-batches of a step"), numbers, computed(micro_batches)},
    {"steps", &TrainingConfig::steps, "Number of optimizer steps", positive("the number of steps"),
     length, as_value},
    {"lr", &TrainingConfig::lr, "Highest learning rate, reached after the warm-up",
     must<double>("the learning rate must be a finite number above 0",
                  [](double lr) { return std::isfinite(lr) && lr > 0; }),
     numbers, of_model(&TrainingDefaults::lr)},
    {"min-lr", &TrainingConfig::min_lr,
     "Learning rate that the schedule ends at, which a step after the last would have; by "
     "default a tenth of {lr}",
     any_value, numbers, computed(last_lr)},
    {"lr-schedule", &TrainingConfig::schedule,
     "Learning rate after the warm-up: cosine or linear, down to {min-lr}; constant; or wsd, "
     "constant and over the last steps down to {min-lr}: until then the run is what a longer one "
     "with the same {warmup} is",
     one_of<LrSchedule>(), numbers, as_value},
    {"decay-share", &TrainingConfig::decay_share,
     "Share of {steps}, at their end, in which {lr-schedule} wsd decays; by default 0.2",
     must<double>("the share of the steps in which the learning rate decays must be above 0 and "
                  "at most 1",
                  [](double share) { return share > 0 && share <= 1; }),
     numbers, in_help},
    {"warmup", &TrainingConfig::warmup,
     "Steps of linear warm-up; by default a part of {steps} that depends on the model", any_value,
     numbers, computed(warmup_steps)},
    {"beta1", &AdamWSettings::beta1, "AdamW's decay of the first moment",
     below_one("AdamW's beta1"), numbers, as_value},
    {"beta2", &AdamWSettings::beta2, "AdamW's decay of the second moment",
     below_one("AdamW's beta2"), numbers, of_model(&TrainingDefaults::beta2)},
    {"adam-epsilon", &AdamWSettings::eps, "AdamW's epsilon, added to the root of the second moment",
     must<double>(
         rule_of_epsilon(),
         [](double e) { return std::isfinite(e) && e >= std::numeric_limits<float>::min(); }),
     numbers, as_value},
    {"weight-decay", &AdamWSettings::decay, "AdamW's weight decay, applied to matrices only",
     finite_from_zero("the weight decay must be a finite number from 0 on"), numbers,
     of_model(&TrainingDefaults::decay)},
    {"clip", &AdamWSettings::clip,
     "Maximum norm of all gradients together; larger ones are scaled down to it; 0: no limit",
     finite_from_zero("the maximum norm of the gradients must be 0 (no limit) or more"), numbers,
     as_value},
    {"rounding", &AdamWSettings::rounding,
     "Rounding of updated weights: nearest; or, with {dtype} bf16, stochastic: up or down at "
     "random, which needs no f32 masters and saves 4 bytes per parameter",
     one_of<Rounding>(), numbers, as_value},
    {"dropout", &TrainingConfig::dropout,
     "Probability of dropout, applied after the embedding and to each branch of a block",
     must<float>("the probability of dropout must be in [0, 1)",
                 [](float p) { return p >= 0 && p < 1; }),
     numbers, as_value},
    {"chunk-loss", &StepChunks::loss_rows,
     "Maximum number of rows of logits in memory at a time; 0: all; by default what {memory} "
     "needs",
     rows_of_chunk("the loss"), numbers, computed(rows_of_logits)},
    {"chunk-mlp", &StepChunks::mlp_rows,
     "Maximum number of rows of each block's MLP, from its norm to the end of the block, in "
     "memory at a time; 0: all; by default what {memory} needs, layer by layer",
     rows_of_chunk("an MLP"), numbers, in_help},
    {"nodes-in-chunks", &StepChunks::nodes,
     "Nodes of a step's tape that run in chunks, and the parts of attention's backward, as they "
     "were chosen for {memory}",
     any_value, numbers, in_help},
    {"seed", &TrainingConfig::seed, "Seed of all random numbers", any_value, numbers, as_value},
    {"nondeterministic", &TrainingConfig::nondeterministic,
     "On a GPU, let cuDNN form the sums of attention's backward in any order: it takes less "
     "memory on most GPUs, and the same run may have other losses in their last bits; on a cpu "
     "nothing changes",
     any_value, numbers, in_help},
};

}  // namespace settings
}  // namespace spool
