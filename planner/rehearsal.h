// Public: one of the headers of docs/public-headers.md.
#pragma once

// A rehearsal runs a piece of work on the meta device: the real model, tape and allocator, without
// memory or arithmetic.  Its report is what the work will take, because the same code later does
// the work.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spool/autograd/survey.h"
#include "spool/runtime/memory/allocation_log.h"
#include "spool/runtime/meta/stream.h"

namespace spool {

// An allocation that is live at the peak.
struct LiveAtPeak {
  std::string name = {};
  Purpose purpose = Purpose::activation;
  size_t bytes = 0;  // whole granules
  Spec spec = {};
  // The work it was allocated for: a phase, the op's name and its node; empty and -1 outside of
  // nodes, such as a parameter's.
  std::string phase = {}, op = {};
  NodeId node = -1;
};

struct Report {
  // Of the device; memory.peak is the budget that suffices, and memory.external_peak the bytes
  // beside it that tensors over other memory have.
  MemoryStats memory;
  double seconds = 0;  // by the machine's roofline
  // Host memory and a file, if the work fills them in; their peaks suffice.
  MemoryStats host = {}, disk = {};
  // What is live at the peak, the largest first.  Its bytes add up to those of memory.at_peak_by;
  // the rest of the peak are holes between allocations.
  std::vector<LiveAtPeak> at_peak = {};
  // Kernels that were launched and have no form for the machine's kind of device, on which the work
  // would fail.
  std::vector<std::string> missing = {};
};

// The report as a table for people: peak and seconds, the peak by purpose, the `most` largest
// allocations at the peak, and missing kernels.
std::string in_words(const Report&, size_t max = 10);

// What a rehearsal of a step saw, as far as it was asked for.
struct RehearsedStep {
  Report report = {};
  Survey survey = {};
  Lifetimes lifetimes = {};           // birth and death of each allocation of the step
  std::vector<TraceSpan> trace = {};  // its timeline
  // All allocations, also what was live before it, on the clock of the trace; its first event.
  AllocationHistory allocations = {};
  size_t first_event = 0;
};
struct AskedOfRehearsal {
  bool survey = false, lifetimes = false, trace = false;
  bool at_peak = false;      // report.at_peak
  bool allocations = false;  // and the trace
};

// A tape that was rehearsed, forward and backward.
struct RehearsedTape {
  Program program = {};
  Survey survey = {};
};

// Runs the work on a meta stream of this machine.  The work must free everything it allocates.
Report rehearse(const Machine&, const std::function<void(MetaStream&)>& work);
// The same without Report::at_peak, for a caller that rehearses often.
Report rehearse_totals(const Machine&, const std::function<void(MetaStream&)>& work);
// Report::at_peak, from a log of the work.
std::vector<LiveAtPeak> live_at_peak(const AllocationLog&);

// Opens a stream on the device, with an arena of exactly the size the work takes.  Throws if the
// device has less memory.
std::unique_ptr<Stream> open_stream_for(const std::function<void(Stream&)>& work, Device,
                                        int threads = 0);

}  // namespace spool
