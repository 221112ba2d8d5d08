#include "spool/autograd/plan.h"

#include <algorithm>
#include <limits>

#include "spool/runtime/check.h"

namespace spool {

namespace {

// The nodes of the tape it was made for, if it says.
NodeId nodes_of(const Plan& plan) {
  constexpr size_t most = std::numeric_limits<NodeId>::max();
  return static_cast<NodeId>(plan.fingerprints.empty() ? most
                                                       : std::min(plan.fingerprints.size(), most));
}

void check_offload(const Offload& o, NodeId nodes) {
  const auto check_node = [&](const char* what, NodeId n) {
    check(n >= -1 && n < nodes, "plan: offloads, value ", o.value, ": ", what, " before node ", n,
          ", which its tape does not have");
  };
  check(o.value >= 0, "plan: offloads speak of value ", o.value, ", which no tape has");
  check(o.rows >= -1, "plan: offloads, value ", o.value, ": ", o.rows,
        " rows, which must be -1 for all of them or a number of rows");
  check_node("its memory goes", o.release);
  check_node("it comes back", o.fetch);
}

void check_offloads(const Plan& plan, NodeId nodes) {
  ValueId before = -1;
  for (const Offload& o : plan.offloads) {
    check_offload(o, nodes);
    check(before < o.value, "plan: offloads: value ", o.value, " comes after value ", before,
          "; they must rise, each once");
    before = o.value;
    const auto v = static_cast<size_t>(o.value);
    const Placement p = v < plan.placement.size() ? plan.placement[v] : Placement::keep;
    check(p == Placement::offload, "plan: offloads say how value ", o.value,
          " is offloaded, and its placement is ", name(p));
  }
}

void check_regions(const Plan& plan, NodeId nodes) {
  NodeId before = 0;
  std::vector<Region> around;  // from the outermost in
  for (const Region& r : plan.regions) {
    check(r.first >= 0 && r.first <= r.last && r.last < nodes, "plan: regions: nodes ", r.first,
          " to ", r.last, " are no nodes of its tape");
    check(before <= r.first, "plan: regions: that from node ", r.first,
          " on comes after that from node ", before, " on; they must rise");
    before = r.first;
    while (!around.empty() && around.back().last < r.first) around.pop_back();
    const Region outer = around.empty() ? r : around.back();
    check(r.last <= outer.last, "plan: regions: nodes ", r.first, " to ", r.last,
          " come after nodes ", outer.first, " to ", outer.last,
          "; a region is inside another or outside it, and comes after those it is inside");
    around.push_back(r);
  }
}

void check_chunks(const Plan& plan, NodeId nodes) {
  check(plan.chunks.size() <= static_cast<size_t>(nodes), "plan: chunks of ", plan.chunks.size(),
        " nodes, and its tape has ", nodes);
  for (size_t n = 0; n < plan.chunks.size(); ++n) {
    check(plan.chunks[n] >= 0, "plan: chunks: node ", n, " cannot be cut into ", plan.chunks[n]);
  }
}

}  // namespace

bool offloads(const Plan& plan) {
  return std::ranges::find(plan.placement, Placement::offload) != plan.placement.end();
}

bool offloads_to_disk(const Plan& plan) {
  return std::ranges::find(plan.offloads, OffloadTarget::disk, &Offload::target) !=
         plan.offloads.end();
}

void check_plan(const Plan& plan) {
  const NodeId nodes = nodes_of(plan);
  check_offloads(plan, nodes);
  check_regions(plan, nodes);
  check_chunks(plan, nodes);
}

}  // namespace spool
