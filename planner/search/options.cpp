#include "spool/planner/search/options.h"

#include <algorithm>
#include <set>

namespace spool {
namespace {

// Finds what is recomputed with some of a segment's values.
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
  }

  std::vector<SegmentOutput> of(const std::vector<ValueId>& values) const {
    std::set<ValueId> recomputed(values.begin(), values.end());
    std::vector<ValueId> waiting = values;
    while (!waiting.empty()) {
      const Node& node = program_.nodes[program_.values[waiting.back()].producer];
      waiting.pop_back();
      const auto add = [&](ValueId v) {
        if (recomputed.insert(v).second) waiting.push_back(v);
      };
      for (const ValueId v : node.outputs) {
        if (!is_choice(v) && !saved_outside_[v]) add(v);
      }
      for (const ValueId v : node.inputs) {
        if (is_inside(v) && !saved_[v]) add(v);
      }
    }
    std::vector<SegmentOutput> outputs;
    for (const ValueId v : recomputed) outputs.push_back(position(v));
    std::ranges::sort(outputs);
    return outputs;
  }

 private:
  bool is_inside(ValueId v) const {
    const NodeId producer = program_.values[v].producer;
    return producer >= segment_.first && producer <= segment_.last &&
           program_.nodes[producer].op->recomputable();
  }
  bool is_choice(ValueId v) const {
    return std::ranges::find(segment_.candidates, v) != segment_.candidates.end();
  }
  SegmentOutput position(ValueId v) const {
    const NodeId producer = program_.values[v].producer;
    const Few<ValueId>& outputs = program_.nodes[producer].outputs;
    return {
        .node = producer - segment_.first,
        .output = static_cast<int>(std::find(outputs.begin(), outputs.end(), v) - outputs.begin())};
  }

  const Program& program_;
  const Segment& segment_;
  // By a node, for its own backward; by one of another segment.
  IdTable<ValueId, bool> saved_, saved_outside_;
};

}  // namespace

std::vector<SegmentOption> recompute_options(const Program& program, const Segment& segment) {
  const Closure closure(program, segment);
  std::vector<SegmentOption> options;
  const size_t subsets = size_t{1} << segment.candidates.size();
  for (size_t subset = 0; subset < subsets; ++subset) {
    std::vector<ValueId> values;
    for (size_t i = 0; i < segment.candidates.size(); ++i) {
      if (subset >> i & 1) values.push_back(segment.candidates[i]);
    }
    SegmentOption option{.recomputed = closure.of(values)};
    if (std::ranges::find(options, option) == options.end()) options.push_back(std::move(option));
  }
  return options;
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

bool is_recomputed(const SegmentOption& option, const Program& program, const Segment& segment,
                   ValueId v) {
  return std::ranges::any_of(option.recomputed, [&](const SegmentOutput& o) {
    return program.nodes[segment.first + o.node].outputs[o.output] == v;
  });
}

void apply(const SegmentOption& option, const Program& program, const Segment& segment,
           Plan& plan) {
  for (const SegmentOutput& o : option.recomputed) {
    plan.placement[program.nodes[segment.first + o.node].outputs[o.output]] = Placement::recompute;
  }
}

}  // namespace spool
