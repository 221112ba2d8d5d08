#include "spool/autograd/plan.h"

#include <algorithm>
#include <limits>

#include "spool/runtime/check.h"

namespace spool {

namespace {

// The number of nodes of the plan's tape; without fingerprints the largest number.
NodeId node_count(const Plan& plan) {
  return plan.fingerprints.empty() ? std::numeric_limits<NodeId>::max()
                                   : plan.fingerprints.next_id();
}

void check_offload(const Offload& o, NodeId nodes) {
  const auto check_node = [&](const char* field, NodeId n) {
    check(n >= -1 && n < nodes, "plan: offloads, value ", o.value, ": ", field, " is before node ",
          n, ", which its tape does not have");
  };
  check(o.value >= 0, "plan: offloads: value ", o.value, " cannot exist");
  check(o.rows >= -1, "plan: offloads, value ", o.value, ": ", o.rows,
        " rows; it must be a number of rows, or -1 for all of them");
  check_node("release", o.release);
  check_node("fetch", o.fetch);
}

void check_offloads(const Plan& plan, NodeId nodes) {
  ValueId before = -1;
  for (const Offload& o : plan.offloads) {
    check_offload(o, nodes);
    check(before < o.value, "plan: offloads: value ", o.value, " comes after value ", before,
          "; list each value once, in rising order");
    before = o.value;
    const Placement p = placement_of(plan, o.value);
    check(p == Placement::offload, "plan: offloads: value ", o.value,
          " is listed, but its placement is ", name(p));
  }
}

void check_regions(const Plan& plan, NodeId nodes) {
  NodeId before = 0;
  std::vector<Region> enclosing;  // the outermost first
  for (const Region& r : plan.regions) {
    check(r.first >= 0 && r.first <= r.last && r.last < nodes, "plan: regions: nodes ", r.first,
          " to ", r.last, " are not nodes of its tape");
    check(before <= r.first, "plan: regions: the region from node ", r.first,
          " comes after the region from node ", before, "; list them in rising order");
    before = r.first;
    while (!enclosing.empty() && enclosing.back().last < r.first) enclosing.pop_back();
    const Region outer = enclosing.empty() ? r : enclosing.back();
    check(r.last <= outer.last, "plan: regions: nodes ", r.first, " to ", r.last,
          " come after nodes ", outer.first, " to ", outer.last,
          "; regions must nest or be disjoint, the outer one first");
    enclosing.push_back(r);
  }
}

void check_chunks(const Plan& plan, NodeId nodes) {
  check(plan.chunks.next_id() <= nodes, "plan: chunks: ", plan.chunks.size(),
        " nodes, but its tape has ", nodes);
  for (NodeId n = 0; n < plan.chunks.next_id(); ++n) {
    check(plan.chunks[n] >= 0, "plan: chunks: node ", n, " cannot be cut into ", plan.chunks[n],
          " chunks");
  }
}

}  // namespace

Offload offload_of(const Plan& plan, ValueId v) {
  const auto at = std::ranges::lower_bound(plan.offloads, v, {}, &Offload::value);
  return at != plan.offloads.end() && at->value == v ? *at : Offload{.value = v};
}

bool offloads(const Plan& plan) {
  return std::ranges::find(plan.placement, Placement::offload) != plan.placement.end();
}

bool offloads_to_disk(const Plan& plan) {
  return std::ranges::find(plan.offloads, OffloadTarget::disk, &Offload::target) !=
         plan.offloads.end();
}

void check_plan(const Plan& plan) {
  const NodeId nodes = node_count(plan);
  check_offloads(plan, nodes);
  check_regions(plan, nodes);
  check_chunks(plan, nodes);
}

}  // namespace spool
