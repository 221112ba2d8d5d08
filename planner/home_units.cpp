#include "spool/planner/home_units.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace spool {
namespace {

struct Span {
  NodeId first = 0, last = -1;
};

// The nodes that read a parameter of the model.
struct Readers {
  NodeId first = 0, last = 0;
  size_t bytes = 0;
  bool trained = false;
};

using AllReaders = std::map<uint32_t, Readers>;

AllReaders readers_of(const Program& program) {
  AllReaders all;
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    for (const ValueId v : program.nodes[n].inputs) {
      const Value& value = program.values[v];
      if (value.number < 0) continue;
      const auto number = static_cast<uint32_t>(value.number);
      const auto at = all.try_emplace(
          number, Readers{.first = n, .bytes = value.spec.nbytes(), .trained = value.needs_grad});
      at.first->second.last = n;
    }
  }
  return all;
}

// The blocks, and the nodes around them; of a program without blocks, each node.
std::vector<Span> spans_of(const Program& program) {
  std::vector<Span> spans;
  const NodeId end = program.nodes.next_id();
  const std::vector<TapeScope> blocks = blocks_of(program);
  NodeId next = 0;
  for (const TapeScope& block : blocks) {
    if (next < block.first) spans.push_back({next, block.first - 1});
    spans.push_back({block.first, block.last});
    next = block.last + 1;
  }
  if (blocks.empty()) {
    for (NodeId n = 0; n < end; ++n) spans.push_back({n, n});
  } else if (next < end) {
    spans.push_back({next, end - 1});
  }
  return spans;
}

bool is_recomputed(const Plan& plan, const Node& node, NodeId n) {
  const auto is_in = [n](const Region& r) { return r.first <= n && n <= r.last; };
  return std::ranges::any_of(plan.regions, is_in) ||
         std::ranges::any_of(node.outputs, [&](ValueId v) {
           return placement_of(plan, v) == Placement::recompute;
         });
}

// Whether backward under the plan reads a parameter that only nodes of the unit read.
bool reads_in_backward(const Program& program, const Plan& plan, const PlannedUnit& unit) {
  const auto is_parameter = [&](ValueId v) { return program.values[v].number >= 0; };
  for (NodeId n = unit.first; n <= unit.last; ++n) {
    const Node& node = program.nodes[n];
    const auto is_of_unit = [&](ValueId v) {
      return is_parameter(v) &&
             std::ranges::binary_search(unit.parameters,
                                        static_cast<uint32_t>(program.values[v].number));
    };
    if (std::ranges::any_of(node.saves, is_of_unit)) return true;
    const bool reads = std::ranges::any_of(node.inputs, is_of_unit);
    if (reads && is_recomputed(plan, node, n)) return true;
  }
  return false;
}

template <class Counts>
size_t bytes_of(const PlannedUnit& unit, const AllReaders& readers, const Counts& counts) {
  size_t bytes = 0;
  for (const uint32_t p : unit.parameters) bytes += counts(readers.at(p)) ? readers.at(p).bytes : 0;
  return bytes;
}

// What is trained beside frozen parameters, as their adapters, is little: it stays on the device.
void leave_out_adapters(PlannedUnit& unit, const AllReaders& readers) {
  const size_t trained = bytes_of(unit, readers, [](const Readers& r) { return r.trained; });
  const size_t frozen = bytes_of(unit, readers, [](const Readers& r) { return !r.trained; });
  if (trained == 0 || trained > frozen) return;
  PlannedUnit rest = unit;
  rest.parameters.clear();
  rest.first_readers.clear();
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    if (readers.at(unit.parameters[i]).trained) continue;
    rest.parameters.push_back(unit.parameters[i]);
    rest.first_readers.push_back(unit.first_readers[i]);
  }
  unit = std::move(rest);
}

// Of `count`, `staying` evenly spaced, from the first one on, before which nothing runs.
bool stays(size_t i, size_t staying, size_t count) {
  return i == 0 ? staying > 0 : (i * staying - 1) / count != ((i + 1) * staying - 1) / count;
}

// Which units stay on the device, of at most so many bytes together: first those that are unlike
// most, as before the first block and after the last one, whose copies have little to hide under.
std::vector<bool> staying_units(const std::vector<size_t>& bytes, size_t room) {
  std::vector<size_t> sorted = bytes, usual, others;
  std::ranges::sort(sorted);
  const size_t median = sorted[sorted.size() / 2];
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool is_usual = bytes[i] <= 2 * median && 2 * bytes[i] >= median;
    (is_usual ? usual : others).push_back(i);
  }
  std::vector<bool> staying(bytes.size());
  std::ranges::stable_sort(others, std::ranges::greater{}, [&](size_t i) { return bytes[i]; });
  for (const size_t i : others) {
    if (bytes[i] > room) continue;
    staying[i] = true;
    room -= bytes[i];
  }
  for (size_t count = usual.size(); count > 0; --count) {
    size_t sum = 0;
    for (size_t i = 0; i < usual.size(); ++i) {
      if (stays(i, count, usual.size())) sum += bytes[usual[i]];
    }
    if (sum > room) continue;
    for (size_t i = 0; i < usual.size(); ++i) staying[usual[i]] = stays(i, count, usual.size());
    break;
  }
  return staying;
}

// What is copied before a unit's backward: of a unit that is away, or state of any.
void place_fetches(Plan& plan, NodeId nodes, int ahead) {
  std::vector<PlannedUnit*> moving, coming;  // in backward, and in forward
  for (PlannedUnit& unit : plan.units) {
    const bool is_away = unit.parameters_away || unit.gradients_away;
    if (is_away || plan.update == UpdateTime::backward) moving.push_back(&unit);
    if (unit.parameters_away) coming.push_back(&unit);
  }
  for (size_t i = 0; i < coming.size(); ++i) {
    const auto before = static_cast<size_t>(ahead);
    coming[i]->forward_fetch = before == 0  ? coming[i]->first
                               : i < before ? 0
                                            : coming[i - before]->first;
  }
  for (size_t i = 0; i < moving.size(); ++i) {
    const size_t after = i + static_cast<size_t>(ahead);
    moving[i]->backward_fetch = after < moving.size() ? moving[after]->last : nodes;
  }
}

}  // namespace

std::vector<PlannedUnit> units_of(const Program& program) {
  std::vector<PlannedUnit> units;
  for (const Span& span : spans_of(program)) {
    units.push_back({.first = span.first, .last = span.last});
    units.back().backward_fetch = span.last;
    units.back().forward_fetch = span.first;
  }
  const AllReaders all = readers_of(program);
  for (const auto& [number, readers] : all) {
    const auto after = std::ranges::upper_bound(units, readers.first, {}, &PlannedUnit::first);
    if (after == units.begin()) continue;
    PlannedUnit& unit = *std::prev(after);
    if (readers.last > unit.last) continue;
    unit.parameters.push_back(number);
    unit.first_readers.push_back(readers.first);
  }
  std::erase_if(units, [](const PlannedUnit& unit) { return unit.parameters.empty(); });
  for (PlannedUnit& unit : units) leave_out_adapters(unit, all);
  return units;
}

void place_homes(Plan& plan, const Program& program, const HomesByHand& by_hand) {
  plan.units = units_of(program);
  plan.update = plan.units.empty() ? UpdateTime::end : by_hand.update;
  plan.units_leaving = by_hand.units_leaving;
  if (plan.units.empty()) return;
  const AllReaders readers = readers_of(program);
  std::vector<size_t> bytes;
  for (const PlannedUnit& unit : plan.units) {
    bytes.push_back(bytes_of(unit, readers, [](const Readers&) { return true; }));
  }
  const std::vector<bool> staying = staying_units(bytes, by_hand.bytes_on_device);
  const NodeId nodes = program.nodes.next_id();
  for (size_t i = 0; i < plan.units.size(); ++i) {
    PlannedUnit& unit = plan.units[i];
    unit.parameters_away = !staying[i];
    unit.gradients_away =
        !staying[i] && bytes_of(unit, readers, [](const Readers& r) { return r.trained; }) > 0;
    unit.in_backward =
        plan.update == UpdateTime::backward || reads_in_backward(program, plan, unit);
  }
  const auto last =
      std::ranges::find_if(plan.units.rbegin(), plan.units.rend(), &PlannedUnit::parameters_away);
  if (last != plan.units.rend()) last->stays = true;  // no unit that is away comes between
  if (plan.units.back().last == nodes - 1) plan.units.back().all_in_forward = true;
  place_fetches(plan, nodes, by_hand.ahead);
  const bool has_state_there = std::ranges::any_of(plan.units, &PlannedUnit::gradients_away);
  if (has_state_there && plan.optimizer_state == OptimizerState::device) {
    plan.optimizer_state = OptimizerState::streamed;
  }
}

}  // namespace spool
