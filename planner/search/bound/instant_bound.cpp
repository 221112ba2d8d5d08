#include "spool/planner/search/bound/instant_bound.h"

#include <algorithm>
#include <limits>

#include "spool/runtime/integer.h"
#include "spool/runtime/memory/arena.h"

namespace spool {
namespace {

constexpr int source = 0, sink = 1;
constexpr double resolution = 1125899906842624.0;  // 2^50 steps of the seconds of all ops

double bytes_of(const Program& program, ValueId v) {
  return static_cast<double>(round_up(program.values[v].spec.nbytes(), Arena::granule));
}

int64_t capacity(double amount) { return static_cast<int64_t>(std::min(amount, resolution)); }

}  // namespace

InstantBound InstantBound::in_forward(const Program& program, NodeId node,
                                      const IdTable<NodeId, double>& seconds, size_t live) {
  const Node& n = program.nodes[node];
  std::vector<ValueId> free(n.inputs.begin(), n.inputs.end());
  free.insert(free.end(), n.saves.begin(), n.saves.end());
  return {program, node, free, seconds, live};
}

InstantBound InstantBound::in_backward(const Program& program, NodeId node,
                                       const IdTable<NodeId, double>& seconds, size_t live) {
  const Node& n = program.nodes[node];
  std::vector<ValueId> free(n.inputs.begin(), n.inputs.end());
  std::erase_if(free, [&](ValueId v) { return std::ranges::count(n.saves, v) > 0; });
  return {program, node + 1, free, seconds, live};
}

InstantBound InstantBound::below(const Program& program, NodeId node,
                                 const IdTable<NodeId, double>& seconds, size_t live) {
  return {program, node, {}, seconds, live};
}

InstantBound::InstantBound(const Program& program, NodeId end, const std::vector<ValueId>& free,
                           const IdTable<NodeId, double>& seconds, size_t live)
    : network_(2 + static_cast<int>(program.nodes.size() + program.values.size())),
      fixed_(static_cast<double>(live)) {
  double total = 0;
  for (NodeId n = 0; n < end; ++n) total += seconds[n];
  unit_ = total > 0 ? total / resolution : 1;
  build(program, end, free, seconds);
  cuts_.push_back(cut_of_fewest_bytes());
  const double needed = static_cast<double>(live) - fixed_;
  cuts_.push_back({.bytes = std::max(needed, cuts_.front().bytes + 1)});
}

// The network contains only values that backward still needs and what they can be recomputed from.
struct InstantBound::Builder {
  const Program& program;
  InstantBound& bound;
  IdTable<ValueId, bool> is_free, is_priced;  // live as the node reads it; in the network
  std::vector<ValueId> waiting = {};          // in the network, but perhaps without their producers

  int vertex_of_op(NodeId n) const { return 2 + n; }
  int vertex_of(ValueId v) const { return 2 + program.nodes.next_id() + v; }

  void add_value(ValueId v) {
    const NodeId producer = program.values[v].producer;
    if (producer < 0 || is_free[v] || is_priced[v]) return;
    is_priced[v] = true;
    const int edge = bound.network_.add_edge(vertex_of(v), vertex_of_op(producer), 0);
    bound.values_.push_back({.edge = edge,
                             .bytes = bytes_of(program, v),
                             .vertex = vertex_of(v),
                             .producer = vertex_of_op(producer)});
    waiting.push_back(v);
  }

  void add_needed(ValueId v) {
    const bool known = is_priced[v];
    add_value(v);
    if (known || !is_priced[v]) return;
    bound.network_.add_edge(source, vertex_of(v), MinCut::unlimited);
    bound.fixed_ -= bytes_of(program, v);
  }

  void add_producer(NodeId producer, double seconds) {
    const Node& node = program.nodes[producer];
    const int edge = bound.network_.add_edge(vertex_of_op(producer), sink, MinCut::unlimited);
    if (!node.op->recomputable()) return;
    bound.ops_.push_back({.edge = edge, .seconds = seconds, .vertex = vertex_of_op(producer)});
    for (const ValueId v : node.inputs) {
      add_value(v);
      if (!is_priced[v]) continue;
      bound.network_.add_edge(vertex_of_op(producer), vertex_of(v), MinCut::unlimited);
    }
  }
};

void InstantBound::build(const Program& program, NodeId end, const std::vector<ValueId>& free,
                         const IdTable<NodeId, double>& seconds) {
  Builder builder{.program = program,
                  .bound = *this,
                  .is_free = IdTable<ValueId, bool>(program.values.size()),
                  .is_priced = IdTable<ValueId, bool>(program.values.size())};
  for (const ValueId v : free) builder.is_free[v] = true;
  for (NodeId n = 0; n < end; ++n) {
    for (const ValueId v : program.nodes[n].saves) builder.add_needed(v);
  }
  IdTable<NodeId, bool> is_added(program.nodes.size());
  while (!builder.waiting.empty()) {
    const NodeId producer = program.values[builder.waiting.back()].producer;
    builder.waiting.pop_back();
    if (!is_added[producer]) builder.add_producer(producer, seconds[producer]);
    is_added[producer] = true;
  }
}

InstantBound::Cut InstantBound::solve() {
  network_.solve(source, sink);
  Cut cut;
  for (const PricedOp& op : ops_) {
    if (network_.is_source_side(op.vertex)) cut.seconds += op.seconds;
  }
  for (const PricedValue& v : values_) {
    if (network_.is_source_side(v.vertex) && !network_.is_source_side(v.producer)) {
      cut.bytes += v.bytes;
    }
  }
  return cut;
}

InstantBound::Cut InstantBound::cut_of_fewest_bytes() {
  for (const PricedValue& v : values_) network_.set_capacity(v.edge, capacity(v.bytes));
  for (const PricedOp& op : ops_) network_.set_capacity(op.edge, 0);
  return solve();
}

InstantBound::Cut InstantBound::cut_at(double seconds_per_byte) {
  const auto known = cuts_by_price_.find(seconds_per_byte);
  if (known != cuts_by_price_.end()) return known->second;
  for (const PricedValue& v : values_) {
    network_.set_capacity(v.edge, capacity(seconds_per_byte * v.bytes / unit_));
  }
  for (const PricedOp& op : ops_) network_.set_capacity(op.edge, capacity(op.seconds / unit_));
  return cuts_by_price_[seconds_per_byte] = solve();
}

// The price of a byte that gives the best bound if `left` bytes may be kept: the slope of the hull
// there.
double InstantBound::best_price(double left) {
  while (true) {
    size_t next = 1;
    while (next + 1 < cuts_.size() && cuts_[next].bytes <= left) ++next;
    Cut &a = cuts_[next - 1], &b = cuts_[next];
    const double price = (a.seconds - b.seconds) / (b.bytes - a.bytes);
    if (a.is_final) return price;
    const Cut between = cut_at(price);
    const double line = a.seconds + price * a.bytes;
    const bool is_below = between.seconds + price * between.bytes < line * (1 - 1e-9);
    if (!is_below || between.bytes < a.bytes || between.bytes > b.bytes) {
      a.is_final = true;
    } else if (between.bytes == a.bytes) {
      a = between;
    } else if (between.bytes == b.bytes) {
      b = between;
    } else {
      cuts_.insert(cuts_.begin() + static_cast<std::ptrdiff_t>(next), between);
    }
  }
}

double InstantBound::seconds_at(double price, double left) {
  const Cut cut = cut_at(price);
  return cut.seconds + price * (cut.bytes - left);
}

double InstantBound::seconds_within(double bytes) {
  const double left = bytes - fixed_;
  if (left < cuts_.front().bytes) return std::numeric_limits<double>::infinity();
  if (left >= cuts_.back().bytes) return 0;
  return std::max(seconds_at(best_price(left), left), 0.0);
}

double InstantBound::seconds_within(double bytes, const InstantLink& link) {
  const double w = link.bytes_per_second, left = bytes - fixed_;
  if (left < 0) return std::numeric_limits<double>::infinity();  // only values can be offloaded
  if (left >= cuts_.back().bytes) return 0;
  const double out = left + w * link.seconds_before, in = left + w * link.seconds_after;
  const double price_out = std::min(best_price(out), 1 / w);
  double best = std::max(seconds_at(price_out, out), 0.0);
  // The best price is at most that of a bound without the divisor.
  const double price_in = best_price(in);
  for (const double part : {0.25, 0.5, 0.75, 0.9, 1.0}) {
    const double price = part * price_in;
    best = std::max(best, seconds_at(price, in) / (1 + price * w));
  }
  return best;
}

}  // namespace spool
