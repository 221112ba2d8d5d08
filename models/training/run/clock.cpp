#include "spool/models/training/run/clock.h"

#include <algorithm>

#include "spool/runtime/cpu/thread_pool.h"

namespace spool {
namespace {

constexpr int first_counted = 2, last_counted = 4;  // steps

int threads_of(const Stream& stream) {
  if (stream.device().type != DeviceType::cpu) return 0;
  return std::get<CpuArchitecture>(stream.architecture()).threads;
}

}  // namespace

StepClock::StepClock(const Stream& stream, double foretold)
    : threads_(threads_of(stream)), foretold_(foretold) {}

double StepClock::now() const {
  return threads_ > 0 ? process_processor_seconds() / threads_ : host_clock();
}

bool StepClock::counts_next() const {
  return steps_ + 1 >= first_counted && steps_ + 1 <= last_counted;
}

bool StepClock::completes_next() const { return steps_ + 1 == last_counted; }

std::optional<double> StepClock::add(double seconds) {
  const bool counts = counts_next();
  ++steps_;
  if (!counts) return {};
  seconds_.push_back(seconds);
  if (steps_ < last_counted) return {};
  std::ranges::sort(seconds_);
  const double median = seconds_[seconds_.size() / 2];
  if (foretold_ > 0) factor_ = median / foretold_;
  return median;
}

}  // namespace spool
