// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// What it costs to have a share of the optimizer's state on the host, measured by rehearsals.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace spool {

// Sending the optimizer's state to the host and streaming it through the device.
struct MeasuredState {
  size_t bytes = 0;  // that the device has less of if all state is on the host
  // So many of these bytes on the host, rising to all of them, and the seconds they cost.
  struct Share {
    double bytes = 0, seconds = 0;
  };
  std::vector<Share> shares = {};
  // The first bytes are copied while the device updates the rest, at no cost; then each has this.
  double last_seconds_per_byte = 0, free_bytes = 0;
  // What a step may take less with state on the host: nothing, unless kernels were measured badly.
  double gain = 0;
  size_t least = 0;  // as MeasuredSegments::least, if all state is on the host
};

// The least seconds that so many bytes of state on the host cost.
inline double least_seconds(const MeasuredState& state, double bytes) {
  return state.last_seconds_per_byte * std::max(bytes - state.free_bytes, 0.0);
}

// The seconds that they cost, between those of the shares that were measured.
double streaming_seconds(const MeasuredState&, double bytes);

}  // namespace spool
