#pragma once

// What a training run is made of.  All of it is made once, before the first step.  After that
// train() changes only what it points to: the weights, the files and the streams.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "spool/kernels/matmul_algorithms.h"
#include "spool/models/formats/run_directory.h"
#include "spool/models/training/run/data.h"
#include "spool/models/training/run/evaluation_history.h"
#include "spool/models/training/run/listener.h"
#include "spool/models/training/run/tokenizer.h"
#include "spool/models/training/run/trace.h"
#include "spool/models/training/run_options.h"
#include "spool/models/training/trainer.h"
#include "spool/runtime/ranks/communicator.h"

namespace spool {

struct RunSetup {
  RunOptions options;                        // completed by the model, the plan and a stored run
  std::unique_ptr<RunListeners> listeners;   // the caller's, the page and the log
  std::shared_ptr<Communicator> ranks = {};  // that train together; null: one alone
  std::unique_ptr<const Tokenizer> tokenizer = {};
  RunSample sample = {};
  std::unique_ptr<const RunData> data = {};
  std::optional<Plan> given_plan = {};
  Machine machine = {};
  PlannedRun planned = {};
  std::unique_ptr<StepTrace> trace = {};  // null: no step is traced

  // Where the run begins: at step 0, or after the checkpoint that it resumes from.
  int64_t first_step = 0;
  std::optional<std::filesystem::path> checkpoint = {};
  EvaluationHistory evaluations = {};

  // What follows is missing in a dry run.
  std::unique_ptr<RunDirectory> directory = {};
  std::unique_ptr<Stream> stream = {};
  std::unique_ptr<Trainer> trainer = {};
  uint64_t tape = 0;                             // fingerprint of a step's tape
  MatmulAlgorithms products = {};                // the table that the run began with, if any
  std::optional<uint64_t> initial_weights = {};  // their hash, if the run began from weights
  std::filesystem::path base = {};               // of adapters: the model that they change
  std::vector<int32_t> stop_tokens = {};         // that the base's files name

  // Whether this rank is the one that plans for all, prints and writes files.
  bool writes() const { return !ranks || ranks->rank() == 0; }
  int64_t steps() const { return options.training.steps; }
  // Whether what is done after each `every` steps, but not after the last step, is due now.
  bool is_due(int64_t every, int64_t done) const {
    return every > 0 && done % every == 0 && done < steps();
  }
  // The step that is traced: the second, in which nothing happens for the first time, or the only.
  int64_t traced_step() const { return std::min(first_step + 1, steps() - 1); }
  // Whether the run is to evaluate after its first_step, as a run that never stopped did: a stop
  // cut that evaluation short, or the run has become longer.
  bool owes_evaluation() const;
};

// How far the run is.
struct RunState {
  explicit RunState(const RunSetup& run)
      : done(run.first_step), enqueued(run.first_step), evaluations(run.evaluations) {}

  int64_t done, enqueued;         // steps; of those that are enqueued, the last may not be done yet
  TokenBatch batch = {};          // of the step that was enqueued last
  EvaluationHistory evaluations;  // between steps
  // With ranks, what one of them asked for with the last step.
  bool stops = false, saves = false;
};

// Checks the options, opens the data, foretells the peak, and initialises the model, from a
// checkpoint if the run resumes.  Throws Error (memory) if the peak is above the budget.  A dry run
// ends before anything is written but the plan, the page and the foretold trace, if they were asked
// for.  The listener outlives the setup.  With ranks each of them sets up its own run: rank 0 plans
// and writes for all.
RunSetup set_up_run(RunOptions, RunListener&, std::shared_ptr<Communicator> ranks = nullptr);

}  // namespace spool
