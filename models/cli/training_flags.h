#pragma once

// The flags that say what a training run computes and how, of every command that plans one.

#include <cstdint>
#include <optional>
#include <string>

#include "spool/models/cli/commands.h"
#include "spool/models/training/run_options.h"

namespace spool {

// The flags as given.  The default of an optional one depends on the model or on other flags.
struct TrainingFlags {
  std::optional<int64_t> layers, heads, channels, context, vocab, batch, seq, warmup, chunk_loss,
      chunk_mlp;
  std::string final_eval = "all";
  std::optional<double> lr, min_lr, decay_share, beta2, weight_decay;
  std::optional<int64_t> accumulate = {};
  std::string dtype = "f32", rounding = name(Rounding::nearest),
              lr_schedule = name(LrSchedule::cosine), device, memory, host_memory;
  std::string recompute = "none", offload = name(Offloading::none), offload_to = "host",
              optimizer_state = name(OptimizerState::device);
  RunOptions options = {};
};

void add_shape_flags(CLI::App&, TrainingFlags&);
void add_step_flags(CLI::App&, TrainingFlags&);
void add_policy_flags(CLI::App&, TrainingFlags&);
void add_sample_flag(CLI::App&, RunOptions&);
void add_machine_flags(CLI::App&, TrainingFlags&, const std::string& memory);

// The options of the run, except for its data and for where it writes.  Throws if flags contradict
// each other.
RunOptions resolve_training(const TrainingFlags&, const CLI::App& command);

// An absolute path without a slash at the end.
std::string absolute_path(const std::string&);

// A table of the defaults that depend on the model.
std::string preset_table();

}  // namespace spool
