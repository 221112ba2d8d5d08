#pragma once

// A rehearsal is a piece of a run done on the meta device: the real model, the real tape, the real
// allocator, and neither memory nor arithmetic.  What it reports is what the run will take, because
// it is the same code that will later do the work.

#include <functional>
#include <memory>

#include "spool/runtime/meta/stream.h"

namespace spool {

struct Report {
  MemoryStats memory;  // memory.peak is the budget that suffices
  double seconds = 0;  // by the machine's roofline
  // Of the host's memory, and of a file, where the work has a link to them and says so; their peaks
  // are what suffices.
  MemoryStats host = {}, disk = {};
};

// Runs the work on a stream that pretends to be the machine.  What the work allocates it must let
// go before it returns.
Report rehearse(const Machine&, const std::function<void(MetaStream&)>& work);

// A stream on the device, its arena just what the work takes.  Throws where the device has less.
std::unique_ptr<Stream> open_stream_for(const std::function<void(Stream&)>& work, Device,
                                        int threads = 0);

}  // namespace spool
