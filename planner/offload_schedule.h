#pragma once

// Chooses when offloaded values leave the device and come back, from the machine's clock: a value
// is released where its copy out will have finished, and fetched early enough that its copy back
// arrives in time.

#include <vector>

#include "spool/autograd/survey.h"

namespace spool {

// Copies back are given so much more time than they take.
inline constexpr double fetch_caution = 1.25;

struct OffloadCandidate {
  ValueId value;
  size_t bytes;
};

// Until when copies out may end: before the last node of forward, or before backward.  What is
// released before backward makes room for backward alone.
enum class CopiesEnd : uint8_t { in_forward, before_backward };

// How the candidates are offloaded, by rising value, on a tape that was surveyed on the machine.
// Leaves out values that backward does not read, and those whose copy out would end too late.
std::vector<Offload> schedule_offloads(const std::vector<OffloadCandidate>&, const Survey&,
                                       const Machine&, OffloadTarget,
                                       CopiesEnd = CopiesEnd::in_forward);

}  // namespace spool
