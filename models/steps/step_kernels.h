#pragma once

// Measures the kernels of a training step of any model on a device: the real step runs a few times
// on a placeholder batch, so each kernel has the operands, caches and memory of a real run.

#include <functional>
#include <limits>
#include <vector>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/runtime/meta/kernel_times.h"
#include "spool/runtime/trace.h"

namespace spool {

// What a step under these plans launches on its device, by a rehearsal.
struct StepKernels {
  // Bytes that the step takes of the device, of its host, and of a disk.
  size_t peak = 0, host_peak = 0, disk_peak = 0;
  double seconds = 0;                // of the step, as foretold
  std::vector<KernelTime> launches;  // in the order of launch; foretold seconds
};
// Rehearses at most two micro-batches: the last launches what those in the middle do.
StepKernels rehearse_kernels(const StepDescription&, const StepPlans&, const Machine&);

// The layout of that step's memory, as lay_out_step() makes it.
std::optional<Layout> lay_out_kernels(const StepDescription&, const StepPlans&, const Machine&);

// The spans of kernels on the compute stream.
std::vector<TraceSpan> kernel_spans(std::vector<TraceSpan>);

// Each kernel of the launches once, in the order of before(); with the mean time of its launches.
std::vector<KernelTime> distinct(std::vector<KernelTime> launches);

// Ends measuring early: after this time, but not before three steps.
struct MeasuringLimit {
  double seconds = std::numeric_limits<double>::infinity();
  std::function<double()> clock = host_clock;
  // Called with the number of steps that were run and their seconds, if measuring ended early.
  std::function<void(int steps, double seconds)> late = [](int, double) {};
};

// Runs the step at most five times, until the sum of the minimum times of the launches is stable,
// and returns these.  `kernels`: its rehearsal.  The stream must have that much free memory, and no
// other work.  Throws if the step launches other kernels than its rehearsal.
std::vector<KernelTime> measure_kernels(const StepDescription&, StepPlans, StepKernels kernels,
                                        Stream&, const MeasuringLimit& = {});

}  // namespace spool
