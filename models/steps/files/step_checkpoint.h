#pragma once

// The files of a StepRunner's checkpoint, of any model:
//   parameters.safetensors   each under its name
//   optimizer.safetensors    m.NAME, v.NAME, ... of the parameters that are trained
//   step.json                the step, and what determines the numbers of the steps that follow
//
// They belong together, and each says of which step and run it is (formats/checkpoint_mark.h).

#include <filesystem>

#include "spool/kernels/matmul_algorithms.h"
#include "spool/models/steps/planned_steps.h"

namespace spool {

// The contents of step.json.  A run goes on with the same numbers only if all of it but the step is
// what it was.
struct StepCheckpoint {
  int64_t step = 0;  // steps done
  uint64_t seed = 0;
  int64_t accumulate = 1;
  int summed_ranks = 0;                         // which a run may change (gradient_sums.h)
  StepChunks chunks = {};                       // of the loss, and of the plan's regions
  IdTable<NodeId, int> chunks_of_nodes = {};    // of each node by itself
  IdTable<NodeId, uint64_t> fingerprints = {};  // of the model's tape of a micro-batch
  // Whether the run was begun by ranks that share each micro-batch, so that chunks, which are of
  // other ops on another mesh, are not a part of it.
  bool has_free_chunks = false;
  MatmulAlgorithms products = {};        // of a GPU's products; empty: the first
  std::filesystem::path directory = {};  // that it was read from
};

// `resumed`: what the run went on from, if it did.
StepCheckpoint describe_checkpoint(int64_t step, const StepDescription&, const PlannedSteps&,
                                   const StepCheckpoint* resumed);

void save_checkpoint(const std::filesystem::path& directory, const StepCheckpoint&, StepModel&,
                     Optimizer&);

// Reads the latest checkpoint of a run's directory.  Throws if there is none, or if it is of steps
// other than these.
StepCheckpoint find_checkpoint(const std::filesystem::path& run, const StepDescription&);
// Whether steps go on in the chunks of a checkpoint.
bool keeps_chunks(const StepCheckpoint&, const StepDescription&);
// The request with the chunks of a checkpoint, for what is not in a plan of its own.
StepRequest with_chunks_of(const StepCheckpoint&, StepRequest);
// Throws if the plan has other chunks.  A run of before there were parts, or of a cpu, has none,
// and gets those of the plan, among `planned`.
void check_chunks(const StepCheckpoint&, Plan, const StepChunks& planned);
// Sets the parameters and the optimizer's state, which was initialised.
void load_checkpoint(const StepCheckpoint&, StepModel&, Optimizer&);

}  // namespace spool
