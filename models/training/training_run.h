#pragma once

// A training run from the first step to the last: data, budget, checkpoints, log,
// evaluations and samples.  The log, and the run.json of a checkpoint, are JSON.

#include <optional>

#include "spool/models/formats/run_directory.h"
#include "spool/models/tokenizers/tokenizer.h"
#include "spool/models/training/faster_plan.h"
#include "spool/models/training/run/checkpoint_files.h"
#include "spool/models/training/run/data.h"
#include "spool/models/training/run/listener.h"
#include "spool/models/training/run/log.h"
#include "spool/models/training/run_options.h"
#include "spool/models/training/run/report.h"
#include "spool/models/training/run/tokenizer.h"
#include "spool/models/training/run/clock.h"
#include "spool/models/training/run/trace.h"

namespace spool {

class TrainingRun {
 public:
  // Checks the options, opens the data, foretells the peak, and initialises the model, from a
  // checkpoint if the run resumes.  Throws Error (memory) if the peak is above the budget.  A dry
  // run ends there, before it writes anything.  The listener outlives the run.
  TrainingRun(RunOptions, RunListener&);
  ~TrainingRun();

  // Trains to the last step, or until patience is lost, or until stop() is true after a step, and
  // writes a checkpoint of the step it reached; a dry run does nothing.  A stop that comes later
  // cuts the final evaluation short.  Throws Error (numeric) if the loss or a gradient is not
  // finite, and Error (file) if the data cannot be read any more, after a checkpoint of what was
  // trained.
  void run(const std::function<bool()>& stop);

 private:
  void check_files();
  void open_data();
  void plan();
  void set_up_trainer(const std::optional<StoredRun>&);
  void choose_algorithms(const std::optional<StoredRun>&);
  void say_how_it_differs(const StoredRun&);
  void open_log();
  void open_report(RunPlanner&);
  void write_report();
  bool times_kernels() const;
  // Trains a step, and enqueues the next one before it waits for this one, if it may.
  void train_step(int64_t step, bool stops);
  void read_batch(int64_t step);
  bool has_batch(int64_t step);
  void enqueue_step(int64_t step);
  bool may_run_ahead(int64_t step) const;
  bool is_traced(int64_t step) const;
  bool is_due(int64_t every, int64_t done) const;
  void say_step(int64_t step, const StepResult&, double seconds);
  void correct(int64_t step, double seconds);
  void look_for_a_faster_plan();
  void after_step(int64_t step, const std::function<bool()>& stop);
  ValidationRows validation_rows(int64_t batches) const;
  // Nothing if stop() is true meanwhile.
  std::optional<double> evaluate(const ValidationRows&, int64_t step,
                                 const std::function<bool()>& stop);
  bool evaluate_between_steps(int64_t done, const std::function<bool()>& stop);
  bool owes_evaluation() const;
  bool make_up_evaluation(const std::function<bool()>& stop);
  bool is_out_of_patience() const;
  std::string lost_patience() const;
  bool is_time_to_save() const;
  std::string next_checkpoint(int64_t step) const;
  void say_it_is_finished();
  void say_where_the_best_is();
  void finish(int64_t step, const std::function<bool()>& stop);
  void read_data(int64_t done, const std::function<void()>& read);
  void checkpoint(int64_t step);
  void try_checkpoint(int64_t step);
  void write_sample(int64_t step);
  std::filesystem::path model_directory() const;
  void save(int64_t step);
  [[noreturn]] void fail_not_finite(int64_t step, const char* what, double value);

  RunOptions options_;
  RunListener& listener_;
  std::optional<Plan> given_plan_;
  PlannedRun planned_;
  Machine machine_;
  StepKernelTimes kernel_times_;  // of the steps that correct the clock, if the plan was searched
  std::unique_ptr<Tokenizer> tokenizer_;
  RunSample sample_;
  std::optional<RunData> data_;
  MatmulAlgorithms products_;                        // the table of the run, if it began with one
  uint64_t tape_ = 0;                                // fingerprint of a step's tape
  std::optional<uint64_t> initial_weights_;          // their hash, if the run began from weights
  std::optional<std::filesystem::path> checkpoint_;  // resumed from, then the last one written
  int64_t first_step_ = 0, last_saved_ = -1;
  std::optional<RunDirectory> directory_;
  std::unique_ptr<Stream> stream_;
  std::optional<Trainer> trainer_;
  std::optional<StepClock> clock_;
  std::optional<Batches> batches_;
  TokenBatch batch_;       // of the step that was enqueued last
  int64_t enqueued_ = 0;   // steps
  double step_began_ = 0;  // by the host's clock
  RunLog log_;
  std::optional<RunReport> report_;
  std::optional<StepTrace> trace_;  // until it is written
  EvaluationHistory evaluations_;   // between steps
  double saved_at_ = 0;             // by the host's clock: the last checkpoint, or the start
};

}  // namespace spool
