#pragma once

// The kernels of a training step of any model, and what they take on a device: the real step is run
// a few times on a placeholder, so that each kernel has the operands, the caches and the memory
// that it has in a run.

#include <functional>
#include <limits>
#include <vector>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/runtime/meta/kernel_times.h"
#include "spool/runtime/trace.h"

namespace spool {

// What a step under these plans launches on its device, from a rehearsal.
struct StepKernels {
  // Bytes that the step takes of the device, of its host, and of a disk.
  size_t peak = 0, host_peak = 0, disk_peak = 0;
  double seconds = 0;                // of the step, as foretold
  std::vector<KernelTime> launches;  // in the order of launch; seconds as foretold
};
// Two micro-batches at most: the last launches what those in the middle do.
StepKernels rehearse_kernels(const StepDescription&, const StepPlans&, const Machine&);

// The layout of that step's memory, as lay_out_step() makes it.
std::optional<Layout> lay_out_kernels(const StepDescription&, const StepPlans&, const Machine&);

// The spans of kernels on the compute stream.
std::vector<TraceSpan> kernel_spans(std::vector<TraceSpan>);

// Each kernel of the launches once, in the order of before(); its time is the mean of its launches.
std::vector<KernelTime> distinct(std::vector<KernelTime> launches);

// When measuring ends before the times stand: once it has taken so long, and three steps.
struct MeasuringLimit {
  double seconds = std::numeric_limits<double>::infinity();
  std::function<double()> clock = host_clock;
  // Is told the steps that were run, and the seconds that they took, if it ended so.
  std::function<void(int steps, double seconds)> late = [](int, double) {};
};

// Runs the step at most five times, until the sum of the least time of each launch stands, and
// returns these.  `kernels` is its rehearsal; the stream has that much memory free, and no other
// work.  Throws if the step launches other kernels than its rehearsal.
std::vector<KernelTime> measure_kernels(const StepDescription&, StepPlans, StepKernels kernels,
                                        Stream&, const MeasuringLimit& = {});

}  // namespace spool
