#pragma once

// Finds out whether another plan would be faster than a run's own, by a clock that the run's steps
// have corrected: by kernel where tracing a step costs nothing, as on a cpu, else by one factor.
// On a cpu copies use the kernels' processors, so one factor for everything changes no plan.

#include <functional>
#include <optional>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/runtime/meta/kernel_times.h"

namespace spool {

// The timed kernels of some steps of a run.
class StepKernelTimes {
 public:
  // Runs a step on the cpu stream and waits for it.
  void measure(Stream&, const std::function<void()>& step);

  // Each kernel once, with its smallest time that another step confirms, given the plans and the
  // machine of the steps.  Empty if no step was measured, or one launched other kernels than its
  // rehearsal.
  std::vector<KernelTime> kernels(const TrainingConfig&, const StepPlans&, const Machine&) const;

 private:
  std::vector<std::vector<TraceSpan>> steps_;
};

// The machine on which the listed kernels take these times, and all others `factor` times as long.
// Copies take as long as before, except on a cpu.
Machine corrected_machine(const Machine&, double factor, const std::vector<KernelTime>& measured);

// The seconds of a step under the run's own plan, and under a faster one.
struct FasterPlan {
  double own_seconds = 0, seconds = 0;
};
// Searches for a plan with the run's chunks and within its limit that is 1 % faster by this
// machine's clock.  The run's own plan was chosen by a search from this request and sample.
std::optional<FasterPlan> find_faster_plan(const PlannedRun&, RunRequest, const SampleLength&,
                                           const Machine&);

}  // namespace spool
