// Public: one of the headers of docs/public-headers.md.
#pragma once

// A rehearsal runs a piece of work on the meta device: the real model, tape and allocator, without
// memory or arithmetic.  Its report is exact, because the same code later does the work.

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
  // The work it was allocated for: a phase, the op's name and its node.  Empty and -1 if no node
  // ran, as for a parameter.
  std::string phase = {}, op = {};
  NodeId node = -1;
};

struct Report {
  // On the device.  memory.peak is the budget that suffices; memory.external_peak are the bytes of
  // tensors over memory outside the arena.
  MemoryStats memory;
  double seconds = 0;  // by the machine's roofline
  // Host memory and a disk file, if the work fills them in; their peaks suffice.
  MemoryStats host = {}, disk = {};
  // The allocations that are live at the peak, the largest first.  Their bytes add up to those of
  // memory.at_peak_by; the rest of the peak are holes between them.
  std::vector<LiveAtPeak> at_peak = {};
  // Kernels that were launched but do not exist for the machine's kind of device; the work would
  // fail there.
  std::vector<std::string> missing = {};
};

// The report as a table for people: peak and seconds, the peak by purpose, the `max` largest
// allocations at the peak, and missing kernels.
std::string in_words(const Report&, size_t max = 10);

// What a rehearsal of a step recorded; only the parts that RehearsalOptions asks for are filled in.
struct RehearsedStep {
  Report report = {};
  Survey survey = {};
  Lifetimes lifetimes = {};           // birth and death of each allocation of the step
  std::vector<TraceSpan> trace = {};  // its timeline
  // All allocations, with those live before the step, on the clock of the trace; the step's first.
  AllocationHistory allocations = {};
  size_t first_event = 0;
};
struct RehearsalOptions {
  bool survey = false, lifetimes = false, trace = false;
  bool at_peak = false;      // report.at_peak
  bool allocations = false;  // implies the trace
};

// The record of a tape that was rehearsed, forward and backward.
struct RehearsedTape {
  Program program = {};
  Survey survey = {};
};

// Runs the work on a meta stream of this machine.  The work must free everything it allocates.
Report rehearse(const Machine&, const std::function<void(MetaStream&)>& work);
// The same without Report::at_peak, which is faster.
Report rehearse_totals(const Machine&, const std::function<void(MetaStream&)>& work);
// Throws if memory is still live when a rehearsal ends.
void check_all_free(const MetaStream&);
// Report::at_peak, from a log of the work.
std::vector<LiveAtPeak> live_at_peak(const AllocationLog&);

// Opens a stream on the device, with an arena of exactly the bytes that the work needs.  Throws if
// the device has less memory.  The stream joins the ranks, if there are any.
std::unique_ptr<Stream> open_stream_for(const std::function<void(Stream&)>& work, Device,
                                        int threads = 0,
                                        const std::shared_ptr<Communicator>& ranks = {});

}  // namespace spool
