#include "spool/planner/annotations.h"

#include <algorithm>

namespace spool {
namespace {

struct AnnotatedRegion {
  Region nodes;
  Annotation says;
};

bool same(const Annotation& a, const Annotation& b) {
  return a.offload_inputs == b.offload_inputs && a.offload_inside == b.offload_inside &&
         a.checkpoint == b.checkpoint;
}

std::vector<AnnotatedRegion> regions_of(std::span<const Annotation> annotations) {
  std::vector<AnnotatedRegion> all;
  for (NodeId n = 0; n < static_cast<NodeId>(annotations.size()); ++n) {
    const Annotation& a = annotations[static_cast<size_t>(n)];
    if (!a.region) {
      check(same(a, {}), "annotation of op ", n,
            ": what it asks for is asked of a region; give it ", "a region number");
      continue;
    }
    const int next = static_cast<int>(all.size());
    const bool goes_on = *a.region == next - 1 && next > 0 && all.back().nodes.last == n - 1;
    check(goes_on || *a.region == next, "annotation of op ", n, ": region ", *a.region,
          *a.region < next ? " was there before, and has ended" : " comes too early", "; here ",
          next, " begins");
    if (!goes_on) {
      all.push_back({{n, n}, a});
      continue;
    }
    check(same(a, all.back().says), "annotation of op ", n, ": region ", *a.region,
          " says something else than at op ", all.back().nodes.first);
    all.back().nodes.last = n;
  }
  return all;
}

}  // namespace

Plan annotated_plan(std::span<const Annotation> annotations, const Tape& tape) {
  check(annotations.size() == tape.nodes().size(), "annotations: ", annotations.size(),
        " for a tape of ", tape.nodes().size(), " ops");
  Plan plan{.placement = std::vector(tape.values().size(), Placement::keep)};
  for (const AnnotatedRegion& region : regions_of(annotations)) {
    const Region nodes = region.nodes;
    const Annotation says = region.says;
    if (says.checkpoint) plan.regions.push_back(nodes);
    const auto place = [&](ValueId v) {
      const Value& value = tape.values()[static_cast<size_t>(v)];
      const bool inside = value.producer >= nodes.first;
      if (value.parameter || !(inside ? says.offload_inside : says.offload_inputs)) return;
      plan.placement[static_cast<size_t>(v)] = Placement::offload;
    };
    for (NodeId n = nodes.first; n <= nodes.last; ++n) {
      const Node& node = tape.nodes()[static_cast<size_t>(n)];
      std::ranges::for_each(node.saves, place);
      if (says.checkpoint) std::ranges::for_each(node.inputs, place);
    }
  }
  return plan;
}

}  // namespace spool
