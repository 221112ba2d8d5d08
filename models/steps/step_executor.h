// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Runs training steps of any model on one stream: forward and backward of each micro-batch, then
// the optimizer.  On a MetaStream the same calls rehearse a step.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "spool/autograd/step_model.h"
#include "spool/autograd/survey.h"
#include "spool/models/optimizers/optimizer_choice.h"
#include "spool/models/steps/step_graphs.h"
#include "spool/runtime/memory/layout.h"
#include "spool/runtime/meta/stream.h"

namespace spool {

// What a step computes, besides the model.
struct StepConfig {
  DType dtype = DType::f32;  // of the parameters
  int64_t accumulate = 1;    // micro-batches of a step
  uint64_t seed = 1;         // of dropout and of stochastic rounding
  OptimizerSettings optimizer = AdamWSettings{};
};

// How steps run.  Nothing here changes a result, except the plan's chunks, which change the order
// of sums.
struct StepPlans {
  Plan step = {};     // for the tape of a micro-batch
  bool graph = true;  // capture a step and replay it, where the device can
  // Bytes of host memory, and of a file in spill_directory, for what is not kept on the device.  A
  // rehearsal that needs more throws.
  size_t host_bytes = MetaStream::unlimited, disk_bytes = MetaStream::unlimited;
  std::filesystem::path spill_directory = {};
  std::optional<Layout> layout = {};  // of a step's memory (step_rehearsal.h); none: best fit
};

// One step.
struct Step {
  int64_t number = 0;  // counted from 0
  double learning_rate = 0;
  int64_t targets = 1;  // valid ones in all micro-batches
};

struct StepResult {
  float loss = 0;       // mean over the step's targets, nats
  float grad_norm = 0;  // before clipping
  bool finite = false;  // whether loss and gradients are; if not, no parameter was changed
};

// Micro-steps are of three kinds, which a layout and its phases tell apart: 0 the first, which
// allocates the gradients, 1 those in the middle, 2 the last, which ends in the optimizer.  A step
// of one micro-batch has phase 0 alone.
constexpr size_t step_phase(int64_t micro, int64_t accumulate) {
  if (micro == 0) return 0;
  return micro + 1 < accumulate ? 1 : 2;
}

// Runs the micro-batch in the model's inputs, forward and backward on a tape with these options,
// and adds its loss to `loss_sum` (1).  Returns what the tape has recorded.
Program run_micro_batch(StepModel&, Stream&, TapeOptions, const Tensor& loss_sum);

class StepExecutor {
 public:
  // Uploads a micro-batch into the model's inputs, 0 <= micro < accumulate.
  using Upload = std::function<void(int64_t micro)>;

  // Allocates everything that lives between steps, without initialising it.  The model and the
  // stream must outlive the executor.
  StepExecutor(StepModel&, const StepConfig&, const StepPlans&, Stream&);

  Optimizer& optimizer() { return *optimizer_; }

  // Has the next run() fill the survey, and only that one; on a MetaStream.
  void survey(Survey* survey) { survey_ = survey; }

  // On a device that captures steps, runs one that changes nothing, so that libraries choose their
  // algorithms, or fail, before the first real step.  Call it after the parameters and the
  // optimizer are initialised; otherwise the first run() does.
  void prepare(double learning_rate);

  // Enqueues a step.  If run() or prepare() throws, what it has allocated is freed, and what it has
  // captured is dropped; if it lacked memory, or model or upload threw, nothing has changed, and it
  // may be called again.  For what the optimizer may leave, see Optimizer.
  void run(const Step&, const Upload&);
  // Result of the last step; waits for it.
  StepResult result() const;

  // Host memory and disk in use; nothing where everything is kept on the device.
  MemoryStats host_memory() const { return link_ ? link_->memory() : MemoryStats{}; }
  MemoryStats disk() const { return offloader_ ? offloader_->disk() : MemoryStats{}; }

 private:
  void run_placeholder(double learning_rate);
  void run_micro_steps(const Step&, const Upload&);
  void free_gradients();
  void set_random(int64_t step, int64_t micro);
  void enqueue_micro_step(int64_t micro);
  void run_micro_step(size_t phase);

  StepModel& model_;
  StepConfig config_;
  StepPlans plans_;
  Stream& stream_;
  std::unique_ptr<HostLink> link_;        // if anything is not kept on the device
  std::unique_ptr<Offloader> offloader_;  // if the plan offloads saved values
  std::unique_ptr<Optimizer> optimizer_;
  Tensor loss_, loss_scale_, random_;  // f32 (1), f32 (1), i32 (4)
  StepGraphs graphs_;
  bool prepared_ = false;
  Survey* survey_ = nullptr;
};

}  // namespace spool
