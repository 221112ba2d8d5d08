#include "spool/planner/search/options.h"

#include <algorithm>
#include <set>

#include "spool/autograd/chunks/cut.h"

namespace spool {
namespace {

SegmentOutput position(const Program& program, const Segment& segment, ValueId v) {
  const NodeId producer = program.values[v].producer;
  const Few<ValueId>& outputs = program.nodes[producer].outputs;
  return {
      .node = producer - segment.first,
      .output = static_cast<int>(std::find(outputs.begin(), outputs.end(), v) - outputs.begin())};
}

ValueId value_at(const Program& program, const Segment& segment, const SegmentOutput& o) {
  return program.nodes[segment.first + o.node].outputs[o.output];
}

// Finds what is recomputed along with some of a segment's values.
class Closure {
 public:
  Closure(const Program& program, const Segment& segment)
      : program_(program),
        segment_(segment),
        saved_(program.values.size()),
        saved_outside_(program.values.size()) {
    for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
      for (const ValueId v : program.nodes[n].saves) {
        saved_[v] = true;
        if (n < segment.first || n > segment.last) saved_outside_[v] = true;
      }
    }
    for (NodeId n = segment.first; n <= segment.last; ++n) {
      if (!is_gather(n)) continue;
      const ValueId v = program_.nodes[n].outputs.front();
      if (!saved_outside_[v]) gathered_.push_back(v);
    }
  }

  std::vector<SegmentOutput> of(const std::vector<ValueId>& values) const {
    std::set<ValueId> recomputed(values.begin(), values.end());
    std::vector<ValueId> waiting = values;
    while (!waiting.empty()) {
      const NodeId producer = program_.values[waiting.back()].producer;
      const Node& node = program_.nodes[producer];
      waiting.pop_back();
      const auto add = [&](ValueId v) {
        if (recomputed.insert(v).second) waiting.push_back(v);
      };
      for (const ValueId v : node.outputs) {
        if (!is_choice(v) && !saved_outside_[v]) add(v);
      }
      if (is_gather(producer)) std::ranges::for_each(gathered_, add);
      for (const ValueId v : node.inputs) {
        if (is_computed(v) && !saved_[v]) add(v);
      }
    }
    std::vector<SegmentOutput> outputs;
    for (const ValueId v : recomputed) outputs.push_back(position(program_, segment_, v));
    std::ranges::sort(outputs);
    return outputs;
  }

 private:
  bool is_gather(NodeId n) const { return program_.nodes[n].op->gathers() != nullptr; }
  bool is_computed(ValueId v) const {
    const NodeId producer = program_.values[v].producer;
    return producer >= segment_.first && producer <= segment_.last &&
           program_.nodes[producer].op->recomputable();
  }
  bool is_choice(ValueId v) const {
    return std::ranges::find(segment_.candidates, v) != segment_.candidates.end();
  }
  const Program& program_;
  const Segment& segment_;
  // Saved by a node for its own backward; saved by a node of another segment.
  IdTable<ValueId, bool> saved_, saved_outside_;
  std::vector<ValueId> gathered_ = {};
};

// Whether these nodes compute the value, of which one chunk at a time exists if they run in chunks.
bool is_inside(const Program& program, ValueId v, NodeId first, NodeId last,
               const std::vector<ValueId>& leaves) {
  const NodeId producer = program.values[v].producer;
  return producer >= first && producer <= last && !std::ranges::binary_search(leaves, v);
}

std::vector<SegmentOption> subsets(const Program& program, const Segment& segment,
                                   const std::vector<ValueId>& candidates,
                                   const SegmentOption& with) {
  const Closure closure(program, segment);
  std::vector<SegmentOption> options;
  for (size_t subset = 0; subset < size_t{1} << candidates.size(); ++subset) {
    std::vector<ValueId> values;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (subset >> i & 1) values.push_back(candidates[i]);
    }
    SegmentOption option = with;
    option.recomputed = closure.of(values);
    if (std::ranges::find(options, option) == options.end()) options.push_back(std::move(option));
  }
  return options;
}

size_t bytes_saved_inside(const Program& program, const CuttableNodes& span,
                          const std::vector<ValueId>& leaves) {
  std::set<ValueId> saved;
  for (NodeId n = span.first; n <= span.last; ++n) {
    for (const ValueId v : program.nodes[n].saves) {
      if (is_inside(program, v, span.first, span.last, leaves)) saved.insert(v);
    }
  }
  size_t bytes = 0;
  for (const ValueId v : saved) bytes += program.values[v].spec.nbytes();
  return bytes;
}

// Powers of two, until what a chunk computes is so small a part of what the segment saves that more
// chunks save next to nothing.
std::vector<int> numbers_of_chunks(int64_t extent, size_t inside, size_t saved) {
  constexpr int few = 16;
  constexpr size_t min_part = 512;
  std::vector<int> numbers;
  for (int n = 2; n <= max_tried_chunks && n <= extent; n *= 2) {
    if (n > few && inside / static_cast<size_t>(n) * 2 * min_part < saved) break;
    numbers.push_back(n);
  }
  return numbers;
}

// The spans that can run in chunks: the longest of each extent, and the MLP alone, since a longer
// span reads values whose gradients are as large as the segment's output.
std::vector<CuttableNodes> spans_of(const Program& program, const Segment& segment) {
  std::vector<CuttableNodes> spans = find_regions(program, segment.first, segment.last);
  for (const CuttableNodes& mlp : cuttable_mlps(program, segment.first, segment.last)) {
    if (std::ranges::find(spans, mlp) == spans.end()) spans.push_back(mlp);
  }
  return spans;
}

}  // namespace

std::vector<SegmentOption> recompute_options(const Program& program, const Segment& segment,
                                             const std::vector<Region>& regions) {
  std::vector<ValueId> candidates = segment.candidates;
  for (const Region& r : regions) {
    if (r.chunks == 1) continue;
    std::erase_if(candidates,
                  [&](ValueId v) { return is_inside(program, v, r.first, r.last, r.leaves); });
  }
  return subsets(program, segment, candidates, {});
}

std::vector<SegmentOption> region_options(const Program& program, const Segment& segment) {
  constexpr size_t min_part = 4;  // of what the segment's candidates save
  size_t saved = 0;
  for (const ValueId v : segment.candidates) saved += program.values[v].spec.nbytes();
  std::vector<SegmentOption> options;
  for (const CuttableNodes& span : spans_of(program, segment)) {
    const std::vector<ValueId> leaves = find_leaves(program, span.first, span.last);
    const size_t inside = bytes_saved_inside(program, span, leaves);
    if (inside * min_part < saved) continue;
    std::vector<ValueId> outside = segment.candidates;
    std::erase_if(outside,
                  [&](ValueId v) { return is_inside(program, v, span.first, span.last, leaves); });
    SegmentRegion region{.first = span.first - segment.first, .last = span.last - segment.first};
    for (const ValueId v : leaves) region.leaves.push_back(position(program, segment, v));
    for (const int chunks : numbers_of_chunks(span.extent, inside, saved)) {
      region.chunks = chunks;
      const auto some = subsets(program, segment, outside, {.region = region});
      options.insert(options.end(), some.begin(), some.end());
    }
  }
  return options;
}

std::vector<NodeId> nodes_run_again(const Program& program, const Segment& segment,
                                    const SegmentRegion& region) {
  const NodeId first = segment.first + region.first, last = segment.first + region.last;
  std::vector<ValueId> leaves;
  for (const SegmentOutput& o : region.leaves) leaves.push_back(value_at(program, segment, o));
  std::ranges::sort(leaves);
  std::set<ValueId> read;  // by backward, or to compute what it reads
  for (const Node& node : program.nodes) read.insert(node.saves.begin(), node.saves.end());
  std::vector<NodeId> nodes;
  for (NodeId n = last; n >= first; --n) {
    const Node& node = program.nodes[n];
    const auto is_needed = [&](ValueId v) {
      return read.contains(v) && is_inside(program, v, first, last, leaves);
    };
    if (std::ranges::none_of(node.outputs, is_needed)) continue;
    nodes.push_back(n - segment.first);
    read.insert(node.inputs.begin(), node.inputs.end());
  }
  std::ranges::reverse(nodes);
  return nodes;
}

int64_t max_chunks(const Program& program, NodeId n) {
  Specs in;
  for (const ValueId v : program.nodes[n].inputs) in.push_back(program.values[v].spec);
  return program.nodes[n].op->max_chunks(in);
}

int64_t chunkable_rows(const Program& program, const Segment& segment) {
  int64_t rows = 0;
  for (NodeId n = segment.first; n <= segment.last; ++n) {
    const int64_t chunks = max_chunks(program, n);
    if (chunks > 1) rows = std::max(rows, chunks);
  }
  return rows;
}

bool is_kept(const SegmentOption& option, const Program& program, const Segment& segment,
             ValueId v) {
  const NodeId producer = program.values[v].producer;
  if (producer < segment.first) return true;
  const SegmentOutput output = position(program, segment, v);
  if (std::ranges::binary_search(option.recomputed, output)) return false;
  const auto& region = option.region;
  return !region || output.node < region->first || output.node > region->last ||
         std::ranges::binary_search(region->leaves, output);
}

void apply(const SegmentOption& option, const Program& program, const Segment& segment,
           Plan& plan) {
  for (const SegmentOutput& o : option.recomputed) {
    plan.placement[value_at(program, segment, o)] = Placement::recompute;
  }
  if (!option.region) return;
  Region region{.first = segment.first + option.region->first,
                .last = segment.first + option.region->last,
                .chunks = option.region->chunks};
  for (const SegmentOutput& o : option.region->leaves) {
    region.leaves.push_back(value_at(program, segment, o));
  }
  plan.regions.push_back(std::move(region));
}

}  // namespace spool
