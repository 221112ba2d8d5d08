#include "spool/planner/report/plan_diff.h"

#include <algorithm>
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

std::vector<Region> only_in(std::vector<Region> a, std::vector<Region> b) {
  const auto before = [](const Region& x, const Region& y) {
    return x.first != y.first ? x.first < y.first : x.last > y.last;
  };
  std::ranges::sort(a, before);
  std::ranges::sort(b, before);
  std::vector<Region> only;
  std::ranges::set_difference(a, b, std::back_inserter(only), before);
  return only;
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
  const auto write_regions = [&](const std::vector<Region>& regions, const char* what) {
    for (const Region& r : regions) {
      out << range_in_words("node", r.first, r.last, node_name) << ": " << what << '\n';
    }
  };
  write_regions(only_in(a.regions, b.regions), "no region any more");
  write_regions(only_in(b.regions, a.regions), "a region");
  const std::string state = from_to(name(a.optimizer_state), name(b.optimizer_state));
  if (!state.empty()) out << "optimizer state: " << state << '\n';
  return out.str();
}

}  // namespace

std::string diff(const Plan& a, const Plan& b) { return difference(a, b, Names(nullptr)); }

std::string diff(const Plan& a, const Plan& b, const Program& program) {
  return difference(a, b, Names(&program));
}

}  // namespace spool
