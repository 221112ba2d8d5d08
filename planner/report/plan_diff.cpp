#include "spool/planner/report/plan_diff.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

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

// "parameters and gradients on the host, fetched before node 9 in forward and 21 in backward"
std::string home(const PlannedUnit& u, bool moves) {
  if (!moves) return "on the device";
  std::string words = u.parameters_away && u.gradients_away ? "parameters and gradients on the host"
                      : u.parameters_away                   ? "parameters on the host"
                      : u.gradients_away                    ? "gradients on the host"
                                                            : "on the device";
  words += sentence(", fetched before node ", u.forward_fetch, " in forward");
  if (u.all_in_forward) words += " with all that backward needs";
  words += sentence(" and ", u.backward_fetch, " in backward");
  if (!u.in_backward) words += ", which reads no parameter";
  if (u.stays) words += ", on the device between them";
  return words;
}

std::string numbers_of(const PlannedUnit& u) {
  std::string words = u.parameters.size() == 1 ? "parameter " : "parameters ";
  for (const uint32_t p : u.parameters) {
    words += sentence(p == u.parameters.front() ? "" : ", ", p);
  }
  return words;
}

// Units of the same nodes are compared; a unit that one plan lacks is there on the device.
template <class NameOf>
void write_units(std::ostream& out, const Plan& a, const Plan& b, NameOf name_of) {
  if (a.units == b.units && a.update == b.update) return;
  const std::string on_device = home({}, /*moves=*/false);
  using Nodes = std::pair<NodeId, NodeId>;
  std::map<Nodes, std::pair<const PlannedUnit*, const PlannedUnit*>> all;
  for (const PlannedUnit& u : a.units) all[{u.first, u.last}].first = &u;
  for (const PlannedUnit& u : b.units) all[{u.first, u.last}].second = &u;
  const auto words = [&](const Plan& plan, const PlannedUnit* u) {
    if (!u) return on_device;
    const bool is_away = u->parameters_away || u->gradients_away;
    return home(*u, is_away || plan.update == UpdateTime::backward);
  };
  for (const auto& [nodes, units] : all) {
    const auto& [from, to] = units;
    std::string change = from_to(words(a, from), words(b, to));
    if (from && to && from->parameters != to->parameters) {
      change += (change.empty() ? "" : "; ") + from_to(numbers_of(*from), numbers_of(*to));
    }
    if (change.empty()) continue;
    out << "the unit of " << range_in_words("node", nodes.first, nodes.second, name_of) << ": "
        << change << '\n';
  }
}

void write_change(std::ostream& out, const char* what, const std::string& from,
                  const std::string& to) {
  if (from != to) out << what << ": " << from_to(from, to) << '\n';
}

std::string bucket_elements(const Plan& plan) {
  return plan.bucket_elements ? std::to_string(plan.bucket_elements) : "as usual";
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
  write_units(out, a, b, node_name);
  write_change(out, "update", name(a.update), name(b.update));
  if (!a.units.empty() && !b.units.empty()) {
    write_change(out, "units leaving", sentence(a.units_leaving), sentence(b.units_leaving));
  }
  write_change(out, "optimizer state", optimizer_state(a), optimizer_state(b));
  write_change(out, "elements of a bucket of state", bucket_elements(a), bucket_elements(b));
  write_change(out, "buckets in flight", std::to_string(std::max(a.buckets_in_flight, 2)),
               std::to_string(std::max(b.buckets_in_flight, 2)));
  return out.str();
}

}  // namespace

std::string diff(const Plan& a, const Plan& b) { return difference(a, b, Names(nullptr)); }

std::string diff(const Plan& a, const Plan& b, const Program& program) {
  return difference(a, b, Names(&program));
}

}  // namespace spool
