#pragma once

// Whether another plan would be faster than a run's own, by the clock that its own steps have
// corrected: by kernel where tracing a step costs nothing, which is on a cpu, else by one factor.
// On a cpu copies use the processors of kernels, so that one factor for all changes no plan.

#include <functional>
#include <optional>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/runtime/meta/kernel_times.h"

namespace spool {

// The kernels of some steps of a run, timed.
class StepKernelTimes {
 public:
  // Runs a step on the stream, of a cpu, and waits for it.
  void measure(Stream&, const std::function<void()>& step);

  // Each kernel once, with the least time that another step confirms.  The plans and the machine
  // are those of the steps.  Nothing if no step was measured, or if one launched other kernels than
  // its rehearsal.
  std::vector<KernelTime> kernels(const TrainingConfig&, const StepPlans&, const Machine&) const;

 private:
  std::vector<std::vector<TraceSpan>> steps_;
};

// The machine whose kernels take these times and, all that are not listed, `factor` times as long.
// Copies beside them take as long as before, but on a cpu.
Machine corrected_machine(const Machine&, double factor, const std::vector<KernelTime>& measured);

// Seconds of a step by the run's own plan, and by one that is faster.
struct FasterPlan {
  double own_seconds = 0, seconds = 0;
};
// Searches for a plan of the run, with its chunks and within its limit, that is 1 % faster by this
// machine's clock.  Its own was chosen; the request and the sample are what it was made from.
std::optional<FasterPlan> find_faster_plan(const PlannedRun&, RunRequest, const SampleLength&,
                                           const Machine&);

}  // namespace spool
