#pragma once

// Chooses when offloaded values leave the device and come back, from the machine's clock: a value
// is released where its copy out will have finished, and fetched early enough that its copy back
// arrives in time.

#include <vector>

#include "spool/autograd/survey.h"

namespace spool {

// Copies back are given this many times the seconds they take.
inline constexpr double fetch_caution = 1.25;

struct OffloadCandidate {
  ValueId value;
  size_t bytes;
};

// When copies out must have ended: by the last node of forward, or by the begin of backward.  A
// value that is released only before backward makes room in backward alone.
enum class CopiesEnd : uint8_t { in_forward, before_backward };

// Schedules the candidates, by rising value, for a tape that was surveyed on the machine.  Leaves
// out values that backward does not read, and those whose copy out would end too late.
std::vector<Offload> schedule_offloads(const std::vector<OffloadCandidate>&, const Survey&,
                                       const Machine&, OffloadTarget,
                                       CopiesEnd = CopiesEnd::in_forward);

}  // namespace spool
