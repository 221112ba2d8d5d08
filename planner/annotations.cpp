#include "spool/planner/annotations.h"

#include <algorithm>

namespace spool {
namespace {

struct AnnotatedRegion {
  Region nodes;
  Annotation annotation;
};

bool agree(const Annotation& a, const Annotation& b) {
  return a.offload_inputs == b.offload_inputs && a.offload_inside == b.offload_inside &&
         a.checkpoint == b.checkpoint;
}

std::vector<AnnotatedRegion> annotated_regions(std::span<const Annotation> annotations) {
  std::vector<AnnotatedRegion> all;
  NodeId n = -1;
  for (const Annotation& a : annotations) {
    ++n;
    if (!a.region) {
      check(agree(a, {}), "annotation of op ", n, ": it has no region to apply to; ",
            "give it a region number");
      continue;
    }
    const int next = static_cast<int>(all.size());
    const bool continues = *a.region == next - 1 && next > 0 && all.back().nodes.last == n - 1;
    check(continues || *a.region == next, "annotation of op ", n, ": region ", *a.region,
          *a.region < next ? " has already ended" : " comes too early", "; the next region is ",
          next);
    if (!continues) {
      all.push_back({.nodes = {.first = n, .last = n}, .annotation = a});
      continue;
    }
    check(agree(a, all.back().annotation), "annotation of op ", n, ": region ", *a.region,
          " has another annotation at op ", all.back().nodes.first);
    all.back().nodes.last = n;
  }
  return all;
}

}  // namespace

Plan annotated_plan(std::span<const Annotation> annotations, const Program& program) {
  check(annotations.size() == program.nodes.size(), "annotations: ", annotations.size(),
        " for a tape of ", program.nodes.size(), " ops; give one for each");
  Plan plan{.placement = std::vector(program.values.size(), Placement::keep)};
  for (const AnnotatedRegion& region : annotated_regions(annotations)) {
    const Region& nodes = region.nodes;
    const Annotation& annotation = region.annotation;
    if (annotation.checkpoint) plan.regions.push_back(nodes);
    const auto place = [&](ValueId v) {
      const Value& value = program.values[v];
      const bool inside = value.producer >= nodes.first;
      const bool offload = inside ? annotation.offload_inside : annotation.offload_inputs;
      if (offload && !value.parameter) plan.placement[v] = Placement::offload;
    };
    for (NodeId n = nodes.first; n <= nodes.last; ++n) {
      const Node& node = program.nodes[n];
      std::ranges::for_each(node.saves, place);
      if (annotation.checkpoint) std::ranges::for_each(node.inputs, place);
    }
  }
  return plan;
}

}  // namespace spool
