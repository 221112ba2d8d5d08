#pragma once

// A small plan that has something of everything.

#include "spool/autograd/plan.h"

namespace spool::testing {

inline Plan small_plan() {
  using enum Placement;
  return {.placement = {keep, keep, recompute, offload, recompute, recompute, keep},
          .offloads = {{.value = 3, .rows = 512, .target = OffloadTarget::disk, .release = 2}},
          .chunks = {1, 1, 8},
          .regions = {{.first = 0, .last = 2}, {.first = 1, .last = 1}},
          .optimizer_state = OptimizerState::streamed,
          .fingerprints = {1, 0xfedcba9876543210, 3}};
}

// Has also a region in chunks, inside a recomputed one.
inline Plan small_plan_in_chunks() {
  Plan plan = small_plan();
  plan.regions = {{.first = 0, .last = 2},
                  {.first = 0, .last = 1, .chunks = 8, .leaves = {2, 4, 5}},
                  {.first = 2, .last = 2}};
  return plan;
}

}  // namespace spool::testing
