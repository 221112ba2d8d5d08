#pragma once

// The times of events on the host's clock.  CUDA compares only events of one device, so a trace has
// an origin on each.

#include <map>
#include <memory>
#include <utility>

#include "spool/runtime/cuda/handles.cuh"
#include "spool/runtime/trace.h"

namespace spool::cuda {

// An event with its host timestamp, late by the latency of one synchronize.
struct TraceOrigin {
  EventHandle event;
  double host = 0;
  explicit TraceOrigin(EventHandle recorded) : event(std::move(recorded)) {
    check_call(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
    host = host_clock();
  }
};

using TraceOrigins = std::map<int, std::shared_ptr<TraceOrigin>>;  // by device

// The times of two events of the origin's device; waits for them.
inline Trace::Interval interval(const TraceOrigin& origin, const EventHandle& begin,
                                const EventHandle& end) {
  check_call(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
  const auto since_origin = [&](const EventHandle& event) {
    float milliseconds = 0;
    check_call(cudaEventElapsedTime(&milliseconds, origin.event.get(), event.get()),
               "cudaEventElapsedTime");
    return origin.host + 1e-3 * static_cast<double>(milliseconds);
  };
  return {since_origin(begin), since_origin(end)};
}

}  // namespace spool::cuda
