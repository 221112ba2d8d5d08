#include "spool/models/training/run/clock.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "spool/runtime/cpu/thread_pool.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

constexpr int first_counted = 2, last_counted = 4;  // steps

int threads_of(const Stream& stream) {
  if (stream.device().type != DeviceType::cpu) return 0;
  return std::get<CpuArchitecture>(stream.architecture()).threads;
}

int ranks_of_process(const Stream& stream) {
  const Communicator* const ranks = stream.ranks();
  return ranks && ranks->are_threads() ? ranks->size() : 1;
}

}  // namespace

// A process's processor time is that of all its ranks.
StepClock::StepClock(const Stream& stream, double foretold)
    : threads_(threads_of(stream) * ranks_of_process(stream)), foretold_(foretold) {}

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

ClockCorrection::ClockCorrection(const RunSetup& run)
    : run_(run), clock_(*run.stream, run.planned.foretold.seconds) {}

void ClockCorrection::enqueue(const std::function<void()>& step) {
  const bool is_timed =
      run_.planned.is_chosen && run_.options.device.type == DeviceType::cpu && clock_.counts_next();
  if (is_timed) {
    kernel_times_.measure(*run_.stream, step);
  } else {
    step();
  }
}

void ClockCorrection::tell_if_complete(int64_t done) {
  if (!corrected_) return;
  run_.listeners->say(fmt::format("foretold step time corrected to {}: {:.3f} x what the plan says",
                                  format_seconds(*corrected_), clock_.factor()));
  run_.listeners->corrected(
      {.step = done, .foretold = clock_.foretold(), .corrected = *corrected_});
  if (run_.planned.is_chosen && run_.writes()) look_for_a_faster_plan();
  if (run_.ranks) run_.ranks->gather("faster plan", "");  // the others wait
}

void ClockCorrection::look_for_a_faster_plan() const {
  const LongWork planning(*run_.listeners, "planning");
  const PlannedRun& planned = run_.planned;
  const Machine corrected =
      corrected_machine(run_.machine, clock_.factor(),
                        kernel_times_.kernels(planned.config, planned.plans, run_.machine));
  const RunRequest request = request_of(run_.options, run_.machine, run_.given_plan);
  const auto faster = find_faster_plan(planned, request, run_.sample.length, corrected);
  if (!faster) return;
  run_.listeners->say(fmt::format(
      "by the times of these steps another plan would be {:.1f} % faster, {} a step instead of {}; "
      "this run keeps its own",
      100 * (1 - faster->seconds / faster->own_seconds), format_seconds(faster->seconds),
      format_seconds(faster->own_seconds)));
}

}  // namespace spool
