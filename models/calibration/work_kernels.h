#pragma once

// Measures the kernels of work that can be repeated, such as a training step: it runs a few times
// on a device, so each kernel has the operands, caches and memory of the real work.

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "spool/planner/rehearsal.h"
#include "spool/runtime/memory/layout.h"
#include "spool/runtime/meta/kernel_times.h"
#include "spool/runtime/trace.h"

namespace spool {

// Work that launches the same kernels each time.
class RepeatedWork {
 public:
  RepeatedWork() = default;
  virtual ~RepeatedWork() = default;
  RepeatedWork(const RepeatedWork&) = delete;
  RepeatedWork& operator=(const RepeatedWork&) = delete;

  // Enqueues it; numbers count from 0.
  virtual void run(int64_t number) = 0;
  // Host memory and disk in use.
  virtual MemoryStats host_memory() const { return {}; }
  virtual MemoryStats disk() const { return {}; }
};

// The memory that work takes besides the device's, and its layout there.
struct WorkMemory {
  size_t host_bytes = MetaStream::unlimited, disk_bytes = MetaStream::unlimited;
  std::optional<Layout> layout = {};  // none: best fit
};

struct MeasurableWork {
  // Makes the work on a stream, ready to run; on a MetaStream for a rehearsal.
  std::function<std::unique_ptr<RepeatedWork>(Stream&, const WorkMemory&)> open;
  // A layout of its memory; nothing if best fit needs no more.
  std::function<std::optional<Layout>(const Machine&)> lay_out = [](const Machine&) {
    return std::optional<Layout>();
  };
};

// What the work launches on its device, by a rehearsal.
struct WorkKernels {
  // Bytes that it takes of the device, of its host, and of a disk.
  size_t peak = 0, host_peak = 0, disk_peak = 0;
  double seconds = 0;                // of one repetition, as foretold
  std::vector<KernelTime> launches;  // in the order of launch; foretold seconds
};
WorkKernels rehearse_kernels(const MeasurableWork&, const Machine&,
                             const std::optional<Layout>& = {});

// The spans of kernels on the compute stream.
std::vector<TraceSpan> kernel_spans(std::vector<TraceSpan>);

// Each kernel of the launches once, in the order of before(); with the mean time of its launches.
std::vector<KernelTime> distinct(std::vector<KernelTime> launches);

// Work that takes longer, in seconds, is repeated once.
inline constexpr double repeated_once = 10;

// Ends measuring before a repetition that would exceed this time.
struct MeasuringLimit {
  double seconds = std::numeric_limits<double>::infinity();
  std::function<double()> clock = host_clock;
  // Called with the number of runs and their seconds, if measuring ended early.
  std::function<void(int runs, double seconds)> late = [](int, double) {};
};

struct MeasuredKernels {
  std::vector<KernelTime> launches;
  // What the two events around a kernel added to its time, and was taken off; 0 where nothing is
  // replayed.
  double event_seconds = 0;
};

// Runs the work once to warm up, and at most four times more, until the sum of the minimum times of
// the launches is stable, and returns these; on a device that captures work, less what events add,
// so that their sum is the time of the work as it is replayed without events.
// `kernels`: its rehearsal in the same layout.  The stream must have that much free memory, and no
// other work.  Throws if the work launches other kernels than its rehearsal.
MeasuredKernels measure_kernels(const MeasurableWork&, std::optional<Layout>, WorkKernels kernels,
                                Stream&, const MeasuringLimit& = {});

}  // namespace spool
