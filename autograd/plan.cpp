#include "spool/autograd/plan.h"

#include <algorithm>

#include "spool/runtime/check.h"

namespace spool {
namespace {

void check_offloads(const std::vector<Offload>& all) {
  ValueId before = -1;
  for (const Offload& o : all) {
    check(o.value > before, "plan: offload of value ", o.value, " comes after that of value ",
          before, "; they must rise, from 0 on");
    check(o.rows >= -1, "plan: ", o.rows, " rows of value ", o.value, " cannot be offloaded");
    check(o.release >= -1 && o.fetch >= -1, "plan: value ", o.value, " is released at node ",
          o.release, " and fetched at node ", o.fetch, "; there are no such nodes");
    before = o.value;
  }
}

void check_regions(const std::vector<Region>& all) {
  std::vector<Region> around;
  NodeId before = 0;
  for (const Region& r : all) {
    check(r.first >= before && r.last >= r.first, "plan: a region of nodes ", r.first, " to ",
          r.last, " after one that begins at node ", before);
    while (!around.empty() && around.back().last < r.first) around.pop_back();
    check(around.empty() || r.last <= around.back().last, "plan: the regions of nodes ",
          around.empty() ? 0 : around.back().first, " to ", around.empty() ? 0 : around.back().last,
          " and ", r.first, " to ", r.last, " overlap; they must be disjoint, or one in the other");
    around.push_back(r);
    before = r.first;
  }
}

}  // namespace

bool offloads(const Plan& plan) {
  return std::ranges::find(plan.placement, Placement::offload) != plan.placement.end();
}

bool offloads_to_disk(const Plan& plan) {
  return std::ranges::any_of(plan.offloads, [&](const Offload& o) {
    const auto i = static_cast<size_t>(o.value);
    return o.target == OffloadTarget::disk && i < plan.placement.size() &&
           plan.placement[i] == Placement::offload;
  });
}

void check_plan(const Plan& plan) {
  check_offloads(plan.offloads);
  check_regions(plan.regions);
}

}  // namespace spool
