// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The results of the last two steps on a device that runs behind the host: each is copied to the
// host behind its step, so that the host can read it while the device runs the next one.

#include <array>
#include <memory>

#include "spool/models/steps/step.h"

namespace spool {

class StepResults {
 public:
  // Takes pinned memory of a few bytes.  The stream must outlive it.
  explicit StepResults(Stream&);
  ~StepResults();
  StepResults(const StepResults&) = delete;
  StepResults& operator=(const StepResults&) = delete;

  // Enqueues the copies of a step's loss, f32 (1), and of the optimizer's clip(), f32 (3).
  void enqueue(int64_t number, const Tensor& loss, const Tensor& clip);
  // The step is about to run again, or anew: its result is another.
  void forget(int64_t number) {
    if (has(number)) slots_[static_cast<size_t>(number) % 2] = {};
  }
  // Whether it has the result of that step.
  bool has(int64_t number) const { return slot(number).number == number; }
  // Waits for that step, and not for those behind it.
  StepResult read(int64_t number);

 private:
  struct Slot {
    int64_t number = -1;
    Event done = {};
  };
  static constexpr size_t floats = 4;  // of a step

  const Slot& slot(int64_t number) const { return slots_[static_cast<size_t>(number) % 2]; }
  float* memory(int64_t number) {
    return reinterpret_cast<float*>(host_.get()) + static_cast<size_t>(number) % 2 * floats;
  }

  Stream& stream_;
  std::unique_ptr<Stream> waiting_;  // waits for a step's event, and the host for it
  std::shared_ptr<std::byte> host_;
  std::array<Slot, 2> slots_;
};

// What clip(), and the loss, say of a step.
StepResult step_result(float loss, const float* clip);

}  // namespace spool
