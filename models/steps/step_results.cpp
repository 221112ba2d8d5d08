#include "spool/models/steps/step_results.h"

#include <cmath>
#include <utility>

namespace spool {

StepResult step_result(float loss, const float* clip) {
  return {.loss = loss, .grad_norm = clip[1], .finite = std::isfinite(loss) && clip[2] > 0};
}

StepResults::StepResults(Stream& stream)
    : stream_(stream),
      waiting_(stream.side_stream()),
      host_(stream.host_memory(2 * floats * sizeof(float))) {}

// Copies may be under way.
StepResults::~StepResults() { stream_.destroy_after_work(std::move(host_)); }

void StepResults::enqueue(int64_t number, const Tensor& loss, const Tensor& clip) {
  float* const to = memory(number);
  stream_.copy_out(to, loss.view().data(), sizeof(float));
  stream_.copy_out(to + 1, clip.view().data(), (floats - 1) * sizeof(float));
  slots_[static_cast<size_t>(number) % 2] = {.number = number, .done = stream_.record()};
}

StepResult StepResults::read(int64_t number) {
  try {
    waiting_->wait(slot(number).done);
    waiting_->synchronize();
  } catch (const Error&) {
    stream_.synchronize();  // its error names the kernels
    throw;
  }
  const float* const from = memory(number);
  return step_result(from[0], from + 1);
}

}  // namespace spool
