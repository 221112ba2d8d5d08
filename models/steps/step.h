// Public: one of the headers of docs/public-headers.md.
#pragma once

// A training step of any model: what determines its numbers, how it runs, and what it returns.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "spool/autograd/sharding/mesh_axes.h"
#include "spool/autograd/step_model.h"
#include "spool/models/optimizers/optimizer_choice.h"
#include "spool/runtime/memory/layout.h"
#include "spool/runtime/meta/stream.h"

namespace spool {

struct Assignment;    // autograd/sharding/shard_program.h
struct RecordedLoss;  // autograd/sharding/sharded_model.h

// What determines a step's numbers, besides the model.
struct StepConfig {
  DType dtype = DType::f32;  // of the parameters
  int64_t accumulate = 1;    // micro-batches per step, of all ranks
  int ranks = 0;             // that share them (runtime/ranks/); 0: one stream computes alone
  int neighbours = 1;        // of the ranks, that share each micro-batch, as StepShards says
  int zero = 2;              // the stage of ZeRO, with ranks: 0 to 3 (exchange/gradient_exchange.h)
  uint64_t seed = 1;         // of dropout and of stochastic rounding
  OptimizerSettings optimizer = AdamWSettings{};

  // Micro-batches of one rank, which must divide those of the step.
  int64_t micro_batches_of_rank() const { return accumulate / (ranks > 0 ? replicas() : 1); }
  // Groups of neighbours, each of which has micro-batches of its own.
  int replicas() const { return ranks / neighbours; }
};

// How steps run.  Nothing here changes a result, except the plan's chunks, which change the order
// of sums.
struct StepPlans {
  Plan step = {};     // for the tape of a micro-batch
  bool graph = true;  // capture a step and replay it, where the device can
  // Bytes of host memory, and of a file in spill_directory, for what is not on the device.  A
  // rehearsal that needs more throws.
  size_t host_bytes = MetaStream::unlimited, disk_bytes = MetaStream::unlimited;
  std::string spill_directory = {};
  std::optional<Layout> layout = {};  // of a step's memory (step_rehearsal.h); none: best fit
};

// One step.
struct Step {
  int64_t number = 0;  // counted from 0
  double learning_rate = 0;
  int64_t targets = 1;  // valid ones in all micro-batches
  // What this rank asks of all of them: to stop after the step, to save.
  bool asks_to_stop = false, asks_to_save = false;
};

struct StepResult {
  float loss = 0;       // mean over the step's targets, nats
  float grad_norm = 0;  // before clipping
  // Loss and gradients.  If false, no parameter was changed; of those that are updated in backward
  // (Plan::update), none whose gradient is not finite.
  bool finite = false;
  bool stops = false, saves = false;  // what a rank asked for with this step
};

// Creates the model on a stream, or for a rehearsal on meta, without setting its parameters.
using MakeStepModel = std::function<std::unique_ptr<StepModel>(Stream&)>;

// How neighbouring ranks share each micro-batch: the axes along which they are arranged, and how
// the ops of a loss are cut along them, the same on all ranks.  shards() makes it
// (sharding/step_shards.h).
struct StepShards {
  MeshAxes mesh = {};
  std::function<Assignment(const RecordedLoss&)> choose = {};
};

// A step of some model, before there is a stream to run it on.
struct StepDescription {
  MakeStepModel make_model;
  StepConfig config = {};
  std::optional<StepShards> shards = {};
};
// With config.neighbours as the shards say, and with shards if there are none in stage 3 of ZeRO.
// Throws if the ranks are not a multiple of those.
StepDescription with_neighbours(StepDescription);
// Throws if steps of this configuration cannot have what the plan says of parameters on the host
// and of updates in backward.
void check_homes(const StepConfig&, const Plan&);
// The same of parameters that have their homes.
void check_homes(const StepConfig&, const Parameters&);
// The model that a rank trains.  What the plan has away has no data, but for Homes (homes.h).
std::unique_ptr<StepModel> make_step_model(const StepDescription&, Stream&, const Plan& = {});

// Uploads a micro-batch into the model's inputs, 0 <= micro < accumulate; a rank uploads its own,
// and those that share one all upload it.
using UploadBatch = std::function<void(int64_t micro)>;

}  // namespace spool
