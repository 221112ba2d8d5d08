#pragma once

// Runs training steps of any model on one stream: forward and backward of each micro-batch, then
// the optimizer.  On a MetaStream the same calls rehearse a step.

#include <cstdint>
#include <memory>
#include <optional>

#include "spool/autograd/survey.h"
#include "spool/models/steps/captured_graphs.h"
#include "spool/models/steps/exchange/gradient_exchange.h"
#include "spool/models/steps/exchange/neighbour_sums.h"
#include "spool/models/steps/exchange/shared_state.h"
#include "spool/models/steps/step.h"

namespace spool {

// The results of the last two steps on a device that runs behind the host.  Each is copied to the
// host after its step, so the host can read it while the device runs the next one.
class StepResults {
 public:
  // Allocates a few bytes of pinned memory.  The stream must outlive it.
  explicit StepResults(Stream&);
  ~StepResults();
  StepResults(const StepResults&) = delete;
  StepResults& operator=(const StepResults&) = delete;

  // Enqueues the copies of a step's loss, f32 (1), and of the optimizer's clip(), f32 (3).
  void enqueue(int64_t number, const Tensor& loss, const Tensor& clip);
  // Call it before the step runs again: its result will be another.
  void forget(int64_t number) {
    if (has(number)) slots_[static_cast<size_t>(number) % 2] = {};
  }
  // Whether it has the result of that step.
  bool has(int64_t number) const { return slot(number).number == number; }
  // Waits for that step, but not for later ones.
  StepResult read(int64_t number);

 private:
  struct Slot {
    int64_t number = -1;
    Event done = {};
  };
  static constexpr size_t floats = 4;  // per step

  const Slot& slot(int64_t number) const { return slots_[static_cast<size_t>(number) % 2]; }
  float* memory(int64_t number) {
    return reinterpret_cast<float*>(host_.get()) + static_cast<size_t>(number) % 2 * floats;
  }

  Stream& stream_;
  std::unique_ptr<Stream> waiting_;  // waits for a step's event; the host waits for this stream
  std::shared_ptr<std::byte> host_;
  std::array<Slot, 2> slots_;
};

// The phase of a micro-step, which layouts distinguish: 0 the first, which allocates the gradients;
// 1 those in the middle; 2 the last, which ends with the optimizer.  A step of one micro-batch has
// phase 0 only.
constexpr size_t step_phase(int64_t micro, int64_t accumulate) {
  if (micro == 0) return 0;
  return micro + 1 < accumulate ? 1 : 2;
}
constexpr size_t phase_of_losses = 3;  // which ranks exchange when all else is done

// Runs the micro-batch in the model's inputs forward and backward, on a tape with these options,
// and adds its loss to `loss_sum` (1).  Returns the tape's program.
Program run_micro_batch(StepModel&, Stream&, TapeOptions, const Tensor& loss_sum);

class StepExecutor {
 public:
  // Allocates everything that lives between steps, without initialising it.  The model and the
  // stream must outlive the executor.
  StepExecutor(StepModel&, const StepConfig&, const StepPlans&, Stream&);

  Optimizer& optimizer() { return *optimizer_; }

  // Makes the next run(), and only that one, fill the survey; on a MetaStream.
  void survey(Survey* survey) { survey_ = survey; }

  // On a device that captures steps, runs one that changes nothing, so that libraries choose their
  // algorithms, or fail, before the first real step.  Call it after parameters and optimizer are
  // initialised; otherwise the first run() does it.
  void prepare(double learning_rate);

  // Enqueues a step.  If run() or prepare() throws, what it allocated is freed, and what it
  // captured is dropped.  If it lacked memory, or the model or the upload threw, nothing has
  // changed, and it may be called again.  For errors of the optimizer, see Optimizer.
  void run(const Step&, const UploadBatch&);
  // Result of the last step; waits for it.
  StepResult result() const;
  // The result of one of the last two steps.  Does not wait for later steps if runs_ahead().
  StepResult result(int64_t number);
  // Whether the host may enqueue a step before it reads the result of the one before.
  bool runs_ahead() const { return results_.has_value(); }

  // Host memory and disk in use; zero if everything is on the device.
  MemoryStats host_memory() const { return link_ ? link_->memory() : MemoryStats{}; }
  MemoryStats disk() const { return offloader_ ? offloader_->disk() : MemoryStats{}; }
  // What ranks exchange; null without them.
  GradientExchange* exchange() const { return exchange_.get(); }
  // See StepRunner::share_state().
  bool share_state(const std::function<void()>& work);

 private:
  void run_placeholder(double learning_rate);
  void run_micro_steps(const Step&, const UploadBatch&);
  void abandon_exchanges() noexcept;  // after a step that failed
  void free_gradients();
  void set_random(int64_t step, int64_t micro);
  void enqueue_micro_step(int64_t micro);
  void run_micro_step(size_t phase, bool is_last);
  void begin_losses(const Step&);
  void keep_loss(int64_t micro);
  void exchange_losses();
  bool host_works() const;
  GradientSink* sink() const;
  Range asked_of(int replica) const;

  StepModel& model_;
  StepConfig config_;
  StepPlans plans_;
  Stream& stream_;
  std::unique_ptr<GradientExchange> exchange_;     // with ranks
  std::unique_ptr<SharedState> shared_;            // with ranks
  std::unique_ptr<NeighbourSums> neighbour_sums_;  // with ranks that share each micro-batch
  std::unique_ptr<HostLink> link_;                 // if anything leaves the device
  std::unique_ptr<Offloader> offloader_;           // if the plan offloads saved values
  std::unique_ptr<Homes> homes_;                   // if the plan has parameters on the host
  std::unique_ptr<Optimizer> optimizer_;
  Tensor loss_, loss_scale_, random_;  // f32 (1), f32 (1), i32 (4)
  Tensor losses_;  // with ranks, of each micro-batch, then what each rank asks for: stop, save
  // Of four kinds of micro-steps: the first, which allocates the gradients; those in the middle,
  // which add to them; the last, which ends with the optimizer; and one that is both.
  CapturedGraphs graphs_;
  std::optional<StepResults> results_;  // if the device captures, and the host has no work
  bool prepared_ = false;
  Survey* survey_ = nullptr;
};

}  // namespace spool
