#pragma once

// What a training run is to do, and the plans by which it does it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "spool/autograd/plan.h"
#include "spool/models/families/gpt2.h"
#include "spool/models/optimizers/adamw.h"
#include "spool/planner/policy.h"
#include "spool/runtime/memory/layout.h"

namespace spool {

struct TrainingConfig {
  Gpt2Config model = {};
  DType dtype = DType::f32;
  int64_t batch = 4;       // rows of a micro-batch
  int64_t seq = 1024;      // tokens of a row
  int64_t accumulate = 1;  // micro-batches of a step
  int64_t steps = 1000;
  int64_t warmup = 0;  // steps
  double lr = 6e-4, min_lr = 6e-5;
  AdamWSettings optimizer = {};
  float dropout = 0;
  int64_t loss_chunk = 0;  // rows of logits that exist at a time; 0: all
  uint64_t seed = 1;

  int64_t tokens_per_step() const { return batch * seq * accumulate; }
  // Throws a sentence where the numbers make no run.
  void validate() const;
};

// The plans of the tapes that a run makes, and how steps are enqueued; none of it changes a number.
struct TrainingPlans {
  Plan step, evaluation;
  // Record a step once and replay it, where the device can, and the host has no work in it.
  bool graph = true;
  // Of the host's memory, and of a file in the directory, for what is not kept on the device; a
  // rehearsal that needs more throws.
  size_t host_bytes = MetaStream::unlimited, disk_bytes = MetaStream::unlimited;
  std::filesystem::path spill_directory = {};
  std::optional<Layout> layout = {};  // of a step's memory (step_layout.h); none: as it comes
};
// As the policy says; the machine's clock says when what is offloaded leaves and comes back.
TrainingPlans make_plans(const TrainingConfig&, Policy = {}, const Machine& = {});
// What the tape of its micro-steps looks like, for plans that are stored; see fingerprint.h.
std::vector<uint64_t> step_fingerprints(const TrainingConfig&);

}  // namespace spool
