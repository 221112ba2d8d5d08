#include "spool/autograd/plan.h"

#include <algorithm>
#include <limits>
#include <ostream>
#include <tuple>

#include "spool/autograd/parameters.h"
#include "spool/runtime/check.h"

namespace spool {

namespace {

// The number of nodes of the plan's tape; without fingerprints the largest number.
NodeId node_count(const Plan& plan) {
  return plan.fingerprints.empty() ? std::numeric_limits<NodeId>::max()
                                   : plan.fingerprints.next_id();
}

// One node more, for a release before backward.
NodeId after_last(NodeId nodes) {
  return nodes == std::numeric_limits<NodeId>::max() ? nodes : nodes + 1;
}

void check_offload(const Offload& o, NodeId nodes) {
  const auto check_node = [&](const char* field, NodeId n, NodeId end) {
    check(n >= -1 && n < end, "plan: offloads, value ", o.value, ": ", field, " is before node ", n,
          ", which its tape does not have");
  };
  check(o.value >= 0, "plan: offloads: value ", o.value, " cannot exist");
  check(o.rows >= -1, "plan: offloads, value ", o.value, ": ", o.rows,
        " rows; it must be a number of rows, or -1 for all of them");
  check_node("release", o.release, after_last(nodes));
  check_node("fetch", o.fetch, nodes);
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

// "plan: regions: nodes 7 to 12"; formats when it is printed.
struct RegionInError {
  const Region& region;
  friend std::ostream& operator<<(std::ostream& out, const RegionInError& e) {
    return out << "plan: regions: nodes " << e.region.first << " to " << e.region.last;
  }
};

// `before` is the last leaf of the regions before; only one region in chunks computes a value.
void check_leaves(const Region& r, ValueId before) {
  for (const ValueId v : r.leaves) {
    check(v >= 0, RegionInError{r}, ": leaves: value ", v, " cannot exist");
    check(before < v, RegionInError{r}, ": leaves: value ", v, " comes after value ", before,
          "; list each value once, in rising order");
    before = v;
  }
}

void check_region_chunks(const Region& r) {
  check(r.chunks >= 1, RegionInError{r}, " cannot run in ", r.chunks,
        " chunks; 1 recomputes them, more run them in chunks");
  check(r.chunks > 1 || r.leaves.empty(), RegionInError{r},
        " have leaves, and 1 chunk; leaves are for regions of more chunks");
  check(r.chunks == 1 || !r.leaves.empty(), RegionInError{r}, " run in ", r.chunks,
        " chunks and have no leaves; list the values made there and read outside");
}

// `inner` begins in `outer`.
void check_nesting(const Region& outer, const Region& inner) {
  check(inner.last <= outer.last, RegionInError{inner}, " come after nodes ", outer.first, " to ",
        outer.last, "; regions must nest or be disjoint, the outer one first");
  if (outer.chunks == 1) return;
  check(inner.chunks == 1, RegionInError{inner}, " run in chunks, inside nodes ", outer.first,
        " to ", outer.last, ", which do too; leave one of the two out, or give the outer one 1 ",
        "chunk and no leaves");
  const bool same = outer.first == inner.first && outer.last == inner.last;
  fail(ErrorKind::invalid, RegionInError{inner}, " are recomputed, inside nodes ", outer.first,
       " to ", outer.last, ", which run in chunks and are recomputed anyway; leave ",
       same ? "the recomputed one out, or list it first" : "the inner one out");
}

void check_regions(const Plan& plan, NodeId nodes) {
  NodeId before = 0;
  ValueId leaf_before = -1;
  std::vector<const Region*> enclosing;  // the outermost first
  for (const Region& r : plan.regions) {
    check(r.first >= 0 && r.first <= r.last && r.last < nodes, RegionInError{r},
          " are not nodes of its tape");
    check(before <= r.first, "plan: regions: the region from node ", r.first,
          " comes after the region from node ", before, "; list them in rising order");
    before = r.first;
    while (!enclosing.empty() && enclosing.back()->last < r.first) enclosing.pop_back();
    check_region_chunks(r);
    if (!enclosing.empty()) check_nesting(*enclosing.back(), r);
    enclosing.push_back(&r);
    check_leaves(r, leaf_before);
    if (!r.leaves.empty()) leaf_before = r.leaves.back();
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

// "plan: unit of nodes 7 to 12"; formats when it is printed.
struct UnitInError {
  const PlannedUnit& unit;
  friend std::ostream& operator<<(std::ostream& out, const UnitInError& e) {
    return out << "plan: unit of nodes " << e.unit.first << " to " << e.unit.last;
  }
};

void check_unit(const PlannedUnit& u, NodeId nodes) {
  const UnitInError unit{u};
  check(u.first >= 0 && u.first <= u.last && u.last < nodes, unit, ": its tape has no such nodes");
  check(!u.parameters.empty(), unit, " has no parameters; leave it out");
  check(u.first_readers.size() == u.parameters.size(), unit, " has ", u.parameters.size(),
        " parameters and ", u.first_readers.size(), " first readers; give one for each");
  for (size_t i = 0; i < u.parameters.size(); ++i) {
    check(i == 0 || u.parameters[i - 1] < u.parameters[i], unit, ": parameter ", u.parameters[i],
          " comes after parameter ", u.parameters[i - 1], "; list each once, in rising order");
    check(u.first <= u.first_readers[i] && u.first_readers[i] <= u.last, unit, ": node ",
          u.first_readers[i], ", the first reader of parameter ", u.parameters[i],
          ", is not one of them");
  }
  check(0 <= u.forward_fetch && u.forward_fetch <= u.first, unit, " is fetched before node ",
        u.forward_fetch, " in forward; that must be at most its first");
  check(u.last <= u.backward_fetch && u.backward_fetch < after_last(nodes), unit,
        " is fetched before node ", u.backward_fetch,
        " in backward; that must be at least its last, and at most the number of nodes");
}

void check_units(const Plan& plan, NodeId nodes) {
  const PlannedUnit* before = nullptr;
  for (const PlannedUnit& unit : plan.units) {
    check_unit(unit, nodes);
    check(!before || before->last < unit.first, UnitInError{unit}, " comes after nodes ",
          before ? before->first : 0, " to ", before ? before->last : 0,
          "; units must be disjoint, in rising order");
    before = &unit;
  }
  check(plan.units_leaving >= 0 && plan.units_leaving < 1e6, "plan: ", plan.units_leaving,
        " units may be on their way; it must be a number from 0 on");
  constexpr int64_t max_bucket = int64_t{1} << 40;
  check(plan.bucket_elements >= 0 && plan.bucket_elements <= max_bucket &&
            plan.bucket_elements % 2048 == 0,
        "plan: a bucket of ", plan.bucket_elements,
        " elements; it must be a multiple of 2048, or 0 for an eighth of all");
  check(plan.update == UpdateTime::end || !plan.units.empty(),
        "plan: parameters are to be updated in backward, and it has no units of them");
  const bool streamed = plan.optimizer_state == OptimizerState::streamed;
  check(streamed || plan.bucket_elements == 0, "plan: buckets are of state that is streamed, and ",
        "its place is ", name(plan.optimizer_state));
  check(streamed || std::ranges::none_of(plan.units, &PlannedUnit::gradients_away),
        "plan: gradients are to live on the host, and the place of the optimizer's state is ",
        name(plan.optimizer_state), "; it must be streamed");
  check(plan.update == UpdateTime::end || plan.optimizer_state != OptimizerState::cpu,
        "plan: parameters are to be updated in backward, and the host updates them at the end; ",
        "optimizer state on the device or streamed can");
}

}  // namespace

void take_homes(Plan& plan, const Plan& of) {
  plan.units = of.units;
  plan.update = of.update;
  plan.units_leaving = of.units_leaving;
  plan.bucket_elements = of.bucket_elements;
}

bool has_homes(const Plan& plan) {
  return std::ranges::any_of(
      plan.units, [](const PlannedUnit& u) { return u.parameters_away || u.gradients_away; });
}

std::vector<int64_t> homes_of(const Plan& plan) {
  std::vector<int64_t> all;
  if (!uses_homes(plan)) return all;
  all.push_back(plan.bucket_elements);
  all.push_back(plan.update == UpdateTime::backward ? 1 : 0);
  for (const PlannedUnit& unit : plan.units) {
    all.push_back((unit.parameters_away ? 1 : 0) + (unit.gradients_away ? 2 : 0));
  }
  return all;
}

std::vector<bool> parameters_away(const Plan& plan) {
  std::vector<bool> away;
  for (const PlannedUnit& unit : plan.units) {
    if (!unit.parameters_away || unit.parameters.empty()) continue;
    away.resize(std::max(away.size(), size_t{unit.parameters.back()} + 1));
    for (const uint32_t p : unit.parameters) away[p] = true;
  }
  return away;
}

void check_units(const Plan& plan, const Parameters& parameters) {
  std::vector<bool> seen(parameters.size());
  for (const PlannedUnit& unit : plan.units) {
    for (const uint32_t p : unit.parameters) {
      check(p < parameters.size(), UnitInError{unit}, " has parameter ", p, ", and the model has ",
            parameters.size(), "; the plan was made for another model");
      check(!seen[p], UnitInError{unit}, " has parameter ", p, ", ", parameters[p]->name,
            ", which another unit has, too");
      seen[p] = true;
    }
  }
}

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

void sort_regions(Plan& plan) {
  std::ranges::sort(plan.regions, {},
                    [](const Region& r) { return std::tuple(r.first, -r.last, r.chunks); });
}

void check_plan(const Plan& plan) {
  const NodeId nodes = node_count(plan);
  check_offloads(plan, nodes);
  check_regions(plan, nodes);
  check_chunks(plan, nodes);
  check_units(plan, nodes);
  const bool streamed = plan.optimizer_state == OptimizerState::streamed;
  check(streamed || plan.state_bytes_on_device == 0, "plan: ", plan.state_bytes_on_device,
        " bytes of the optimizer's state are to stay on the device, and its place is ",
        name(plan.optimizer_state), "; only state that is streamed has such a share");
}

}  // namespace spool
