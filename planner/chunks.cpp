#include "spool/planner/chunks.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>

#include "spool/autograd/chunks/cut.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

void check_rows(int64_t rows) {
  check(rows > 0, "plan: chunks of ", rows, " rows; a chunk has at least 1");
}

// The farthest position from `begin` towards `end` at which `holds` is true.  It is true at
// `begin`, and false from some position on.
template <class Holds>
NodeId farthest(NodeId begin, NodeId end, const Holds& holds) {
  const NodeId direction = begin <= end ? 1 : -1;
  NodeId good = 0, bad = std::abs(end - begin) + 1;  // distances
  for (NodeId step = 1; good + step < bad; step *= 2) {
    if (!holds(begin + direction * (good + step))) {
      bad = good + step;
      break;
    }
    good += step;
  }
  while (bad - good > 1) {
    const NodeId middle = good + (bad - good) / 2;
    (holds(begin + direction * middle) ? good : bad) = middle;
  }
  return begin + direction * good;
}

// Finds the spans within some nodes.  Relies on that adding nodes to a span never enlarges its
// extent, and never makes it possible to cut, except by adding the missing index.
class SpanFinder {
 public:
  SpanFinder(const Program& program, NodeId first, NodeId last)
      : program_(program), first_(first), last_(last) {
    for (NodeId n = first; n <= last; ++n) alone_.push_back(extent(n, n));
  }

  void find(std::vector<CuttableNodes>& found) const {
    std::set<int64_t> extents(alone_.begin(), alone_.end());
    extents.erase(0);
    for (const int64_t e : extents) find_with_extent(e, found);
  }

 private:
  // 0 if they cannot be cut.
  int64_t extent(NodeId first, NodeId last) const {
    const Cut c = cut(program_, first, last);
    return c ? c.extent : 0;
  }

  void find_with_extent(int64_t e, std::vector<CuttableNodes>& found) const {
    NodeId begin = first_;  // the spans found so far begin before it
    for (NodeId end = first_; end <= last_; ++end) {
      NodeId indexed = end;  // other nodes may lie between, and are computed once
      while (indexed >= begin && alone_[static_cast<size_t>(indexed - first_)] < e) --indexed;
      if (indexed < begin || extent(indexed, end) < e) continue;
      const NodeId first = farthest(indexed, begin, [&](NodeId n) { return extent(n, end) >= e; });
      const auto has_extent = [&](NodeId n) { return extent(first, n) >= e; };
      const NodeId last = farthest(end, last_, has_extent);
      end = last;
      begin = first + 1;
      if (extent(first, last) != e) continue;
      if (!find_leaves(program_, first, last).empty()) {
        found.push_back({.first = first, .last = last, .extent = e});
      }
    }
  }

  const Program& program_;
  NodeId first_, last_;
  std::vector<int64_t> alone_;  // the extent of each node
};

// The MLP of a block, or why it, or its nodes, cannot be cut.
struct Mlp {
  CuttableNodes nodes = {};
  std::string obstacle = {};
};

// The first node that computes a value of the largest size.
NodeId producer_of_widest(const Program& program, const TapeScope& block) {
  NodeId producer = block.first;
  size_t max = 0;
  for (NodeId n = block.first; n <= block.last; ++n) {
    for (const ValueId v : program.nodes[n].outputs) {
      const size_t bytes = program.values[v].spec.nbytes();
      if (bytes > max) producer = n;
      max = std::max(max, bytes);
    }
  }
  return producer;
}

Mlp mlp_of(const Program& program, const TapeScope& block) {
  const NodeId widest = producer_of_widest(program, block);
  const Cut from_widest = cut(program, widest, block.last);
  NodeId first = widest;
  for (const ValueId v : program.nodes[widest].inputs) {
    const NodeId producer = program.values[v].producer;
    if (producer < block.first || !from_widest.carries(v)) continue;
    first = producer;
    break;
  }
  const Cut whole = cut(program, first, block.last);
  return {.nodes = {.first = first, .last = block.last, .extent = whole.extent},
          .obstacle = whole.obstacle};
}

}  // namespace

Plan chunk_rows(const Program& program, int64_t rows) {
  check_rows(rows);
  Plan plan;
  for (const Node& node : program.nodes) {
    Specs in;
    for (ValueId v : node.inputs) in.push_back(program.values[v].spec);
    const int64_t max = node.op->max_chunks(in);
    plan.chunks.push_back(max > 1 ? static_cast<int>(ceil_div(max, rows)) : 1);
  }
  return plan;
}

std::optional<Region> chunk_region(const Program& program, NodeId first, NodeId last,
                                   int64_t rows) {
  check_rows(rows);
  const Cut c = cut(program, first, last);
  check(bool(c), "plan: nodes ", first, " to ", last, " cannot run in chunks: ", c.obstacle);
  if (rows >= c.extent) return std::nullopt;
  Region region{.first = first,
                .last = last,
                .chunks = static_cast<int>(ceil_div(c.extent, rows)),
                .leaves = find_leaves(program, first, last)};
  check(!region.leaves.empty(), "plan: nodes ", first, " to ", last,
        " cannot run in chunks: nothing of what they compute is read outside");
  return region;
}

std::vector<NodesInChunks> nodes_in_chunks(const Plan& plan) {
  std::vector<NodesInChunks> all;
  for (const Region& r : plan.regions) {
    if (r.chunks > 1) all.push_back({.first = r.first, .last = r.last, .chunks = r.chunks});
  }
  return all;
}

std::vector<Region> regions_of(const Program& program, const std::vector<NodesInChunks>& nodes) {
  std::vector<Region> regions;
  for (const auto& [first, last, chunks] : nodes) {
    if (last < 0) continue;
    const bool exist = 0 <= first && first <= last && last < program.nodes.next_id();
    check(exist && chunks > 1, "plan: nodes ", first, " to ", last, " in ", chunks,
          " chunks; the tape has ", program.nodes.size(), " nodes, and a region 2 chunks or more");
    const Cut c = cut(program, first, last);
    check(!c || chunks <= c.extent, "plan: nodes ", first, " to ", last, " cannot run in ", chunks,
          " chunks, only in ", c.extent);
    const auto region = chunk_region(program, first, last, /*rows=*/1);
    regions.push_back(*region);
    regions.back().chunks = chunks;
  }
  return regions;
}

std::vector<NodesInChunks> parts_of(const Program& program, const Plan& plan) {
  std::vector<NodesInChunks> all;
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    if (program.nodes[n].op->kind() != OpKind::attention) continue;
    all.push_back({.first = n, .last = -1, .chunks = plan.chunks.value_or(n, 1)});
  }
  return all;
}

std::vector<NodesInChunks> parts_in(std::vector<NodesInChunks> nodes) {
  std::erase_if(nodes, [](const NodesInChunks& n) { return n.last >= 0; });
  return nodes;
}

Plan with_parts(Plan plan, const std::vector<NodesInChunks>& nodes) {
  for (const auto& [node, last, parts] : nodes) {
    if (last >= 0 || plan.chunks.value_or(node, 1) == parts) continue;
    if (!plan.chunks.contains(node)) plan.chunks.resize(static_cast<size_t>(node) + 1, 1);
    plan.chunks[node] = parts;
  }
  return plan;
}

std::vector<CuttableNodes> find_regions(const Program& program, NodeId first, NodeId last) {
  std::set<NodeId> begins{first, last + 1};
  for (const TapeScope& scope : program.scopes) {
    if (scope.last < scope.first || !(scope.parent < 0 || scope.options.recompute)) continue;
    for (const NodeId border : {scope.first, scope.last + 1}) {
      if (border > first && border <= last) begins.insert(border);
    }
  }
  std::vector<CuttableNodes> found;
  for (auto begin = begins.begin(); *begin <= last;) {
    const NodeId own_first = *begin++;
    SpanFinder(program, own_first, *begin - 1).find(found);
  }
  std::ranges::stable_sort(found, {},
                           [](const CuttableNodes& s) { return std::tuple(-s.extent, s.first); });
  return found;
}

std::vector<CuttableNodes> find_regions(const Program& program) {
  return find_regions(program, 0, program.nodes.next_id() - 1);
}

std::vector<CuttableNodes> cuttable_mlps(const Program& program, NodeId first, NodeId last) {
  std::vector<CuttableNodes> mlps;
  for (const TapeScope& scope : program.scopes) {
    if (!scope.is_block() || scope.first < first || scope.last > last) continue;
    const Mlp mlp = mlp_of(program, scope);
    const CuttableNodes& nodes = mlp.nodes;
    if (!mlp.obstacle.empty() || nodes.extent < 2) continue;
    if (!find_leaves(program, nodes.first, nodes.last).empty()) mlps.push_back(nodes);
  }
  return mlps;
}

std::vector<Region> chunk_mlps(const Program& program, int64_t rows) {
  check_rows(rows);
  std::vector<Region> regions;
  std::string obstacle = "it has no outermost scopes, which are the blocks";
  bool any = false;
  for (const TapeScope& scope : program.scopes) {
    if (!scope.is_block()) continue;
    const Mlp mlp = mlp_of(program, scope);
    const auto& [first, last, extent] = mlp.nodes;
    if (!mlp.obstacle.empty()) {
      if (!any) obstacle = mlp.obstacle;
      any = any || extent < 2;
      continue;
    }
    any = true;
    if (const auto region = chunk_region(program, first, last, rows)) regions.push_back(*region);
  }
  check_setting(any, {"chunk-mlp"},
                "no block of this model has an MLP that can run in chunks: ", obstacle);
  return regions;
}

}  // namespace spool
