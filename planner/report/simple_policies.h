#pragma once

// Plans by simple rules, for any program with layers: what people set by hand, and what other
// planners do.  No search should lose to any of them at the same bytes; tests and benchmarks
// compare.

#include <cstdint>
#include <string>
#include <vector>

#include "spool/planner/policy.h"
#include "spool/planner/search/searched_step.h"

namespace spool {

enum class SimpleRule : uint8_t {
  uniform,         // all layers alike: any subset of a layer's values is recomputed, or all of it
  first_blocks,    // the first k layers alike, the others keep all
  segments,        // 2 layers, 3, 4, 6 or the root of their number, recomputed as a whole
  seconds_a_byte,  // the values that cost the fewest seconds a byte, in all layers
  offloading,      // all layers alike: what is saved leaves the device, or what a layer reads
};
template <>
inline constexpr std::array enumerator_names<SimpleRule>{"uniform", "first blocks", "segments",
                                                         "seconds a byte", "sending"};

struct SimplePolicy {
  SimpleRule rule = {};
  std::string name = {};  // "norms,gelu of 3 layers"
  Plan plan = {};         // without chunks
};

// Those of every rule but `sending`; the first keeps all.
std::vector<SimplePolicy> simple_policies(const SearchedStep&);
// Those that send values to a host or a disk, or stream the optimizer's state.
std::vector<SimplePolicy> offloading_policies(const SearchedStep&, OffloadTarget);

// The few that people know: keep all, recompute norms, activations or attention of every layer,
// whole layers, or segments of several; the rest is that of the policy.  No two are equal, and the
// first keeps all.
std::vector<SimplePolicy> policies_by_hand(const SearchedStep&, const Policy& rest);

// A plan laid out, whatever it takes; its loss is in chunks of so many rows.
FoundPlan lay_out_plan(const SearchedStep&, Plan, int64_t loss_rows);

}  // namespace spool
