#pragma once

// A rehearsal runs a piece of work on the meta device: the real model, tape and allocator, without
// memory or arithmetic.  Its report is what the work will take, because the same code later does
// the work.

#include <functional>
#include <memory>
#include <vector>

#include "spool/autograd/survey.h"
#include "spool/runtime/memory/lifetimes.h"
#include "spool/runtime/meta/stream.h"

namespace spool {

struct Report {
  // Of the device; memory.peak is the budget that suffices, and memory.external_peak the bytes
  // beside it that tensors over other memory have.
  MemoryStats memory;
  double seconds = 0;  // by the machine's roofline
  // Host memory and a file, if the work fills them in; their peaks suffice.
  MemoryStats host = {}, disk = {};
};

// What a rehearsal of a step saw, as far as it was asked for.
struct RehearsedStep {
  Report report = {};
  Survey survey = {};
  Lifetimes lifetimes = {};           // birth and death of each allocation of the step
  std::vector<TraceSpan> trace = {};  // its timeline
};
struct AskedOfRehearsal {
  bool survey = false, lifetimes = false, trace = false;
};

// A tape that was rehearsed, forward and backward.
struct RehearsedTape {
  Program program = {};
  Survey survey = {};
};

// Runs the work on a meta stream of this machine.  The work must free everything it allocates.
Report rehearse(const Machine&, const std::function<void(MetaStream&)>& work);

// Opens a stream on the device, with an arena of exactly the size the work takes.  Throws if the
// device has less memory.
std::unique_ptr<Stream> open_stream_for(const std::function<void(Stream&)>& work, Device,
                                        int threads = 0);

}  // namespace spool
