// Public: one of the headers of docs/public-headers.md.
#pragma once

// Trains any model in a budget of bytes: plans its steps, foretells their memory and time, opens
// the device with exactly that memory, and runs them; writes checkpoints, and resumes from them
// with the same bits.
//
//   struct Net final : StepModel {          // its inputs at fixed addresses
//     explicit Net(Stream&);
//     Parameters& parameters() override;
//     Var loss(Tape&) override;
//   };
//   StepRunner runner({.make_model = make<Net>}, {.budget = size_t{64} << 20});
//   runner.planned().foretold;              // the peak and the time of a step
//   while (runner.steps() < 1000) {
//     runner.step(1e-3, targets, [&](int64_t micro) { ... write a micro-batch ... });
//   }

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spool/kernels/matmul_algorithms.h"
#include "spool/models/steps/planned_steps.h"

namespace spool {

class Communicator;
class RunDirectory;
class StepExecutor;
struct StepCheckpoint;

// A make_model for a model whose constructor takes only a stream.
template <class Model>
std::unique_ptr<StepModel> make(Stream& stream) {
  return std::make_unique<Model>(stream);
}

// Where steps run.
struct StepPlace {
  Device device = {};
  int threads = 0;  // of a cpu; 0: one per core that the process may use
  // The clock by which steps are planned; none: this device's, whose kernels are measured if the
  // table in the user's cache lacks them (step_calibration.h).
  std::optional<Machine> machine = {};
  // The ranks that train together with this one, as many as StepConfig says; null: one alone.
  std::shared_ptr<Communicator> ranks = nullptr;
};

class StepRunner {
 public:
  // Plans the steps, opens the device, and initialises the parameters.  With `resume`, the
  // directory of a run that save() has written to, everything is as after its latest checkpoint,
  // and the plan has the run's chunks, as they change the order of sums.  Throws Error (memory) if
  // the steps do not fit, and Error (file) if there is no checkpoint, or one of another model.
  StepRunner(StepDescription, const StepRequest&, const StepPlace& = {},
             const std::string& resume = {});
  // Takes finished plans and a stream that outlives the runner: allocates everything that lives
  // between steps, without setting it.
  StepRunner(StepDescription, const StepPlans&, Stream&);
  ~StepRunner();

  // What was planned; after the second constructor, its plans only.
  const PlannedSteps& planned() const { return planned_; }
  Stream& stream() { return *stream_; }
  // The model, of the type that make_model made.
  template <class Model = StepModel>
  Model& model() {
    return static_cast<Model&>(model_->whole());
  }
  Optimizer& optimizer();

  // Sets the parameters to their initial values, and the optimizer's state to its own.
  void initialise();
  // On a device that captures steps, runs one that changes nothing, so that libraries choose their
  // algorithms, or fail, before the first real step; otherwise that step does it.
  void prepare(double learning_rate);

  // Number of steps done.
  int64_t steps() const { return steps_; }
  // Runs the next step and waits for its result.  `targets`: the number of valid targets in all
  // micro-batches, by which a mean loss divides (StepModel::loss()); any number if the loss does
  // not read TapeOptions::loss_scale.
  StepResult step(double learning_rate, int64_t targets, const UploadBatch&);
  // Enqueues a step of any number; result() waits for it.
  void run(const Step&, const UploadBatch&);
  StepResult result() const;
  // The result of one of the last two steps.  If runs_ahead(), the device may still run the last
  // one: it captures steps, and no plan gives the host work in a step.
  StepResult result(int64_t number);
  bool runs_ahead() const;

  // Writes a checkpoint of the steps done into a run's directory, which is created if missing and
  // locked from then on (formats/run_directory.h): parameters.safetensors, optimizer.safetensors
  // and step.json.  Throws Error (file), and changes nothing, if it has the checkpoints of a run
  // that this runner neither resumed nor saved; then it may be called again with another directory.
  void save(const std::string& directory);

  // With ranks, calls work() on rank 0 alone, which may read the optimizer's state meanwhile, as
  // the others answer for theirs; without, just calls it.  Returns whether it was done; if it
  // throws, that is false on the others.  Between steps.  Throws Error (device) if the parameters
  // of one are not those of the others.
  bool share_state(const std::function<void()>& work);

  // Host memory and disk in use; nothing where everything is kept on the device.
  MemoryStats host_memory() const;
  MemoryStats disk() const;

 private:
  // The two steps of the first constructor.
  void plan(const StepRequest&, const StepPlace&, const std::optional<StepCheckpoint>&);
  void open(const StepPlace&, const std::optional<StepCheckpoint>&);
  void make_executor(Stream&);
  void write(const std::string& directory);
  void check_is_own(const std::filesystem::path& run) const;

  StepDescription description_;
  PlannedSteps planned_;
  std::unique_ptr<Stream> own_stream_;
  Stream* stream_ = nullptr;
  std::unique_ptr<StepModel> model_;
  std::unique_ptr<StepExecutor> executor_;
  std::unique_ptr<RunDirectory> directory_;      // of the last save()
  std::vector<std::filesystem::path> own_runs_;  // resumed or saved; canonical paths
  std::unique_ptr<const StepCheckpoint> resumed_;
  MatmulAlgorithms products_ = {};  // the table that a GPU's products are computed by, if any
  int64_t steps_ = 0;
};

}  // namespace spool
