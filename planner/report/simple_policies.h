#pragma once

// Plans by simple rules, for any program with layers: those that people set by hand, and those of
// other planners.  A search should not lose to any of them at the same bytes; tests and benchmarks
// compare.

#include <cstdint>
#include <string>
#include <vector>

#include "spool/planner/policy.h"
#include "spool/planner/search/searched_step.h"

namespace spool {

enum class SimpleRule : uint8_t {
  uniform,       // all layers alike: any subset of a layer's values is recomputed, or all of them
  first_blocks,  // the first k layers alike; the others keep all
  segments,      // segments of 2, 3, 4, 6 or sqrt(layers) layers, recomputed as a whole
  seconds_per_byte,  // the values that cost the fewest seconds per byte, in all layers
  offloading,        // all layers alike: what a layer saves is offloaded, or what it reads
};
template <>
inline constexpr std::array enumerator_names<SimpleRule>{"uniform", "first blocks", "segments",
                                                         "seconds a byte", "sending"};

struct SimplePolicy {
  SimpleRule rule = {};
  std::string name = {};  // "norms,gelu of 3 layers"
  Plan plan = {};         // without chunks
};

// Plans of every rule but `offloading`; the first keeps all.
std::vector<SimplePolicy> simple_policies(const SearchedStep&);
// Plans that offload values to the host or a disk, or stream the optimizer's state.
std::vector<SimplePolicy> offloading_policies(const SearchedStep&, OffloadTarget);

// The few that people know: keep all, recompute norms, activations or attention of every layer,
// whole layers, or segments of several; `rest` sets everything else.  No two are equal, and the
// first keeps all.
std::vector<SimplePolicy> policies_by_hand(const SearchedStep&, const Policy& rest);

// Lays out the plan's memory, whatever it takes; `loss_rows`: of a chunk of its loss.
FoundPlan lay_out_plan(const SearchedStep&, Plan, int64_t loss_rows);

}  // namespace spool
