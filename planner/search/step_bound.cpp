#include "spool/planner/search/step_bound.h"

#include <algorithm>
#include <limits>
#include <set>

namespace spool {
namespace {

// What a rehearsal that keeps all tells of each node.
struct NodeCosts {
  IdTable<NodeId, double> forward_seconds;
  IdTable<NodeId, size_t> live;  // most bytes, in forward or backward
};

NodeCosts costs_of(const MeasuredSegments& m) {
  const size_t count = m.program.nodes.size();
  NodeCosts costs{.forward_seconds = IdTable<NodeId, double>(count),
                  .live = IdTable<NodeId, size_t>(count)};
  for (const SurveyedWork& work : m.keep_all.works) {
    if (work.node < 0) continue;
    size_t& live = costs.live[work.node];
    live = std::max(live, work.live);
    const bool runs_again = work.phase == Phase::forward && work.micro_batch == 0;
    if (runs_again) costs.forward_seconds[work.node] += work.seconds;
  }
  return costs;
}

// Bytes that are live in each node whatever is kept of what the nodes below it save.
IdTable<NodeId, int64_t> fixed_bytes(const Program& program, const IdTable<NodeId, size_t>& live) {
  IdTable<ValueId, bool> is_saved(program.values.size());
  IdTable<NodeId, int64_t> fixed(program.nodes.size());
  int64_t below = 0;
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    int64_t own = 0;  // saved below, and read by the node itself
    for (const ValueId v : program.nodes[n].saves) {
      const auto bytes = static_cast<int64_t>(program.values[v].spec.nbytes());
      if (program.values[v].producer < 0) continue;
      (is_saved[v] ? own : below) += bytes;
      if (!is_saved[v]) own += bytes;
      is_saved[v] = true;
    }
    fixed[n] = static_cast<int64_t>(live[n]) - below + own;
  }
  return fixed;
}

}  // namespace

StepBound::StepBound(const MeasuredSegments& measured, int64_t micro_batches)
    : measured_(measured), micro_batches_(static_cast<double>(micro_batches)) {
  const NodeCosts costs = costs_of(measured);
  for (const NodeId n : instants()) {
    instants_.push_back(
        {.node = n,
         .bound = InstantBound(measured.program, n, costs.forward_seconds, costs.live[n])});
  }
}

std::vector<NodeId> StepBound::instants() const {
  const Program& program = measured_.program;
  std::set<NodeId> nodes;
  std::vector<const Segment*> layers;
  for (const Segment& s : measured_.segments) {
    if (!s.candidates.empty()) layers.push_back(&s);
    for (NodeId n = s.first; n <= s.last; ++n) {
      if (max_chunks(program, n) > 1) nodes.insert(n);
    }
  }
  const IdTable<NodeId, int64_t> fixed = fixed_bytes(program, costs_of(measured_).live);
  for (size_t quarter = 0; quarter <= 4 && !layers.empty(); ++quarter) {
    const Segment& s = *layers[(layers.size() - 1) * quarter / 4];
    NodeId fullest = s.first;
    for (NodeId n = s.first; n <= s.last; ++n) {
      if (fixed[n] > fixed[fullest]) fullest = n;
    }
    nodes.insert(fullest);
  }
  return {nodes.begin(), nodes.end()};
}

double StepBound::seconds_within(size_t bytes, const std::vector<bool>& rows_allowed) {
  double least = std::numeric_limits<double>::infinity();
  if (bytes < measured_.least) return least;
  for (size_t choice = 0; choice < measured_.rows.size(); ++choice) {
    if (!rows_allowed[choice]) continue;
    double extra = 0;
    for (Instant& i : instants_) {
      const int64_t saved = -measured_.live_of_rows[choice][i.node];
      extra = std::max(extra, i.bound.seconds_within(bytes, saved));
    }
    extra += measured_.seconds_of_rows[choice];
    least = std::min(least, measured_.seconds + micro_batches_ * extra);
  }
  return least;
}

}  // namespace spool
