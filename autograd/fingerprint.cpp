#include "spool/autograd/fingerprint.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "spool/runtime/hash.h"

namespace spool {

namespace {

void add_spec(Hash& hash, const Spec& spec) {
  hash.add(std::string_view(name(spec.dtype)));
  hash.add(int64_t{spec.shape.rank()});
  for (int i = 0; i < spec.shape.rank(); ++i) hash.add(spec.shape[i]);
}

void add_values(Hash& hash, const Few<ValueId>& ids, const IdTable<ValueId, Value>& values) {
  hash.add(uint64_t{ids.size()});
  for (const ValueId id : ids) {
    const Value& v = values[id];
    hash.add(int64_t{id});
    add_spec(hash, v.spec);
    hash.add(uint64_t{v.parameter != nullptr} << 1 | uint64_t{v.needs_grad});
  }
}

std::string description(const Node& n, const IdTable<ValueId, Value>& values) {
  const std::string attributes = n.op->attributes();
  std::string words = n.op->name();
  if (!attributes.empty()) words.append(" (").append(attributes).append(")");
  if (!n.outputs.empty()) words += sentence(" ", values[n.outputs.front()].spec);
  return words;
}

// One more than the largest value that the plan names.
size_t planned_values(const Plan& plan) {
  const size_t offloaded = plan.offloads.empty() ? 0 : size_t(plan.offloads.back().value) + 1;
  return std::max(plan.placement.size(), offloaded);
}

constexpr const char* remedy =
    " (layers, batch, sequence, type or options of the model); make a plan for this one";

}  // namespace

uint64_t fingerprint_after(uint64_t before, const Node& n, const IdTable<ValueId, Value>& values) {
  Hash hash(before);
  hash.add(std::string_view(n.op->name()));
  hash.add(std::string_view(n.op->attributes()));
  add_values(hash, n.inputs, values);
  add_values(hash, n.outputs, values);
  return hash.state();
}

IdTable<NodeId, uint64_t> fingerprints(const Program& program) {
  IdTable<NodeId, uint64_t> all;
  uint64_t last = empty_fingerprint;
  for (const Node& n : program.nodes) {
    last = fingerprint_after(last, n, program.values);
    all.push_back(last);
  }
  return all;
}

void check_fingerprint(const Plan& plan, const Program& program, NodeId id) {
  const Node& n = program.nodes[id];
  const IdTable<ValueId, Value>& values = program.values;
  const IdTable<NodeId, uint64_t>& expected = plan.fingerprints;
  if (expected.empty()) return;
  const auto refuse = [&](const auto&... why) {
    throw Error(
        ErrorKind::invalid,
        sentence("plan: node ", id, " is ", description(n, values), ", and ", why..., remedy),
        {.op = n.op->name()});
  };
  if (!expected.contains(id)) {
    refuse("the plan was made for a tape that ends before it, after ", expected.size(), " nodes");
  }
  const uint64_t before = id == 0 ? empty_fingerprint : expected[id - 1];
  if (fingerprint_after(before, n, values) != expected[id]) {
    refuse("the plan was made for a tape that differs from there on");
  }
  if (id + 1 == expected.next_id() && planned_values(plan) > values.size()) {
    refuse("is the last, with ", values.size(), " values, and the plan places ",
           planned_values(plan));
  }
}

namespace {

// That of the program's parameters those of each unit, and no other nodes, read them.
void check_readers(const Plan& plan, const Program& program) {
  std::unordered_map<uint32_t, std::pair<const PlannedUnit*, NodeId>> known;
  for (const PlannedUnit& unit : plan.units) {
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      known.emplace(unit.parameters[i], std::pair(&unit, unit.first_readers[i]));
    }
  }
  std::unordered_set<uint32_t> read;
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    for (const ValueId v : program.nodes[n].inputs) {
      const Parameter* const p = program.values[v].parameter;
      const auto found = p && p->number ? known.find(*p->number) : known.end();
      if (found == known.end()) continue;
      const auto [unit, first_reader] = found->second;
      const bool is_first = read.insert(*p->number).second;
      check(unit->first <= n && n <= unit->last && (!is_first || n == first_reader),
            "plan: the unit of nodes ", unit->first, " to ", unit->last, " has parameter ",
            *p->number, ", ", p->name, ", first read by node ", first_reader, ", and node ", n,
            " (", program.nodes[n].op->name(), ") reads it; the plan was made for other parameters",
            remedy);
    }
  }
  for (const auto& [number, unit] : known) {
    check(read.contains(number), "plan: the unit of nodes ", unit.first->first, " to ",
          unit.first->last, " has parameter ", number,
          ", which no node reads; the plan was made for other parameters", remedy);
  }
}

}  // namespace

void check_complete(const Plan& plan, const Program& program) {
  const size_t expected = plan.fingerprints.size(), actual = program.nodes.size();
  check(expected == 0 || actual == expected, "plan: it was made for a tape of ", expected,
        " nodes, and this one has ", actual, remedy);
  if (!plan.units.empty()) check_readers(plan, program);
}

}  // namespace spool
