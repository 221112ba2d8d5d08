#include "spool/planner/report/plan_diff.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace spool {

namespace {

// Names of nodes and values; without a tape, empty.
class Names {
 public:
  explicit Names(const Program* program) : program_(program) {}

  std::string of_node(NodeId n) const {
    if (!program_ || !program_->nodes.contains(n)) return {};
    return program_->nodes[n].op->name();
  }
  std::string of_value(ValueId v) const {
    if (!program_ || !program_->values.contains(v)) return {};
    const Value& value = program_->values[v];
    if (value.parameter) return sentence("parameter ", value.parameter->name);
    if (value.producer < 0) return "an input";
    return sentence(of_node(value.producer), " of node ", value.producer);
  }

 private:
  const Program* program_;
};

// "values 5 to 9 (add of node 2 to gelu of node 4)"
template <class NameOf>
std::string range_in_words(const char* what, int32_t first, int32_t last, NameOf name_of) {
  const std::string from = name_of(first), to = name_of(last);
  const bool one = first == last;
  std::string words = one ? sentence(what, " ", first) : sentence(what, "s ", first, " to ", last);
  if (from.empty() || to.empty()) return words;
  return words + (one ? " (" + from + ")" : " (" + from + " to " + to + ")");
}

// One line per run of neighbours with the same change; change(id) is empty if there is none.
template <class Change, class NameOf>
void write_runs(std::ostream& out, const char* what, size_t count, Change change, NameOf name_of) {
  const auto end = static_cast<int32_t>(count);
  std::string last;
  int32_t first = 0;
  for (int32_t id = 0; id <= end; ++id) {
    std::string next = id < end ? change(id) : "";
    if (id > 0 && next == last) continue;
    if (!last.empty()) out << range_in_words(what, first, id - 1, name_of) << ": " << last << '\n';
    last = std::move(next);
    first = id;
  }
}

std::string from_to(const std::string& a, const std::string& b) {
  return a == b ? "" : a + " -> " + b;
}

// "offload, 512 rows, to disk, out before node 9"
std::string placement(const Plan& plan, ValueId value) {
  const Placement p = placement_of(plan, value);
  std::string words = name(p);
  if (p != Placement::offload) return words;
  const Offload o = offload_of(plan, value);
  if (o.rows >= 0) words += sentence(", ", o.rows, " rows");
  if (o.target != OffloadTarget::host) words += sentence(", to ", name(o.target));
  if (o.release >= 0) words += sentence(", out before node ", o.release);
  if (o.fetch >= 0) words += sentence(", back before node ", o.fetch);
  return words;
}

std::string chunks(const Plan& plan, NodeId node) {
  const int n = std::max(plan.chunks.value_or(node, 1), 1);
  return sentence(n, n == 1 ? " chunk" : " chunks");
}

// The regions of a plan that have the same nodes; empty if there are none.
struct RegionsInWords {
  std::string what;    // "a region of 8 chunks"
  std::string leaves;  // "leaves 31, 33"
};

void add_in_words(RegionsInWords& words, const Region& r) {
  words.what += words.what.empty() ? "a region" : " and a region";
  if (r.chunks != 1) words.what += sentence(" of ", r.chunks, " chunks");
  const char* comma = "leaves ";
  for (const ValueId v : r.leaves) {
    words.leaves += sentence(comma, v);
    comma = ", ";
  }
}

template <class NameOf>
void write_regions(std::ostream& out, const Plan& a, const Plan& b, NameOf name_of) {
  if (a.regions == b.regions) return;
  struct Nodes {
    NodeId first, last;
    bool operator<(const Nodes& other) const {
      return first != other.first ? first < other.first : last > other.last;
    }
  };
  struct FromTo {
    RegionsInWords from, to;
  };
  std::map<Nodes, FromTo> all;
  for (const Region& r : a.regions) add_in_words(all[{r.first, r.last}].from, r);
  for (const Region& r : b.regions) add_in_words(all[{r.first, r.last}].to, r);
  for (const auto& [nodes, regions] : all) {
    const auto& [from, to] = regions;
    std::string change = from.what.empty() ? to.what : from_to(from.what, to.what);
    if (to.what.empty()) change = "no region any more";
    if (change.empty()) change = from_to(from.leaves, to.leaves);
    if (change.empty()) continue;
    out << range_in_words("node", nodes.first, nodes.last, name_of) << ": " << change << '\n';
  }
}

std::string tape_of(const Plan& plan) {
  if (plan.fingerprints.empty()) return "any";
  return sentence("one of ", plan.fingerprints.size(), " nodes");
}

void write_tapes(std::ostream& out, const Plan& a, const Plan& b) {
  if (a.fingerprints == b.fingerprints) return;
  out << "tape: " << tape_of(a) << " -> " << tape_of(b);
  const auto [at, in_b] = std::ranges::mismatch(a.fingerprints, b.fingerprints);
  if (at != a.fingerprints.end() && in_b != b.fingerprints.end()) {
    out << ", which differ from node " << at - a.fingerprints.begin() << " on";
  }
  out << '\n';
}

// "streamed, 4096 bytes of it on the device"
std::string optimizer_state(const Plan& plan) {
  std::string words = name(plan.optimizer_state);
  if (const size_t bytes = plan.state_bytes_on_device) {
    words += sentence(", ", bytes, " bytes of it on the device");
  }
  return words;
}

std::string difference(const Plan& a, const Plan& b, const Names& names) {
  std::ostringstream out;
  write_tapes(out, a, b);
  write_runs(
      out, "value", std::max(a.placement.size(), b.placement.size()),
      [&](ValueId v) { return from_to(placement(a, v), placement(b, v)); },
      [&](ValueId v) { return names.of_value(v); });
  const auto node_name = [&](NodeId n) { return names.of_node(n); };
  write_runs(
      out, "node", std::max(a.chunks.size(), b.chunks.size()),
      [&](NodeId n) { return from_to(chunks(a, n), chunks(b, n)); }, node_name);
  write_regions(out, a, b, node_name);
  const std::string state = from_to(optimizer_state(a), optimizer_state(b));
  if (!state.empty()) out << "optimizer state: " << state << '\n';
  const std::string buckets = from_to(std::to_string(std::max(a.buckets_in_flight, 2)),
                                      std::to_string(std::max(b.buckets_in_flight, 2)));
  if (!buckets.empty()) out << "buckets in flight: " << buckets << '\n';
  return out.str();
}

}  // namespace

std::string diff(const Plan& a, const Plan& b) { return difference(a, b, Names(nullptr)); }

std::string diff(const Plan& a, const Plan& b, const Program& program) {
  return difference(a, b, Names(&program));
}

}  // namespace spool
