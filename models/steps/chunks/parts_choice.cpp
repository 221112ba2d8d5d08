#include "spool/models/steps/chunks/parts_choice.h"

#include <algorithm>
#include <tuple>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/report/simple_policies.h"
#include "spool/runtime/integer.h"

namespace spool {

SearchedStep with_parts(SearchedStep step, const std::vector<NodesInChunks>& parts) {
  if (parts.empty()) return step;
  step.rehearse = [parts, inner = step.rehearse](const Plan& plan, const auto& layout,
                                                 const RehearsalOptions& asked) {
    return inner(with_parts(plan, parts), layout, asked);
  };
  step.rehearse_tape = [parts, inner = step.rehearse_tape](const Plan& plan) {
    return inner(with_parts(plan, parts));
  };
  return step;
}

bool are_in_same_chunks(const IdTable<NodeId, int>& a, const IdTable<NodeId, int>& b) {
  for (NodeId n = 0; n < std::max(a.next_id(), b.next_id()); ++n) {
    if (a.value_or(n, 1) != b.value_or(n, 1)) return false;
  }
  return true;
}

PartsChoice::PartsChoice(const StepDescription& step, const Machine& machine) {
  if (!std::holds_alternative<CudaArchitecture>(machine.architecture)) return;
  const Machine nominal = nominal_machine(machine);
  const RehearsedTape whole = rehearse_tape(step, {}, nominal);
  int max = 1;
  for (const Node& node : whole.program.nodes) {
    Specs in;
    for (const ValueId v : node.inputs) in.push_back(whole.program.values[v].spec);
    max = std::max(max, static_cast<int>(node.op->max_parts(in)));
  }
  std::vector<NodesInChunks> all = parts_of(whole.program, {});
  for (int parts = 1; parts < 2 * max; parts *= 2) {
    for (NodesInChunks& node : all) node.chunks = std::min(parts, max);
    const RehearsedTape tape = rehearse_tape(step, with_parts(Plan{}, all), nominal);
    for (const NodesInChunks& node : all) {
      for (const SurveyedWork& w : tape.survey.works) {
        if (w.phase != Phase::backward || w.node != node.first) continue;
        options_[w.node].push_back({node.chunks, w.seconds, w.live - w.live_before});
      }
    }
  }
  std::erase_if(options_, [](const auto& of) {
    return std::ranges::all_of(of.second,
                               [&](const Option& o) { return o.bytes == of.second.front().bytes; });
  });
}

const PartsChoice::Option& PartsChoice::best(const std::vector<Option>& all, size_t bytes) {
  return *std::ranges::min_element(all, {}, [bytes](const Option& o) {
    const bool fits = o.bytes <= bytes;
    return std::tuple(!fits, fits ? 0 : o.bytes, o.seconds, o.parts);
  });
}

std::vector<NodesInChunks> PartsChoice::within(const std::map<NodeId, size_t>& live,
                                               size_t bytes) const {
  std::vector<NodesInChunks> all;
  for (const auto& [node, options] : options_) {
    const auto at = live.find(node);
    const size_t others = at == live.end() ? 0 : at->second;
    const Option& chosen = best(options, bytes - std::min(bytes, others));
    all.push_back({.first = node, .last = -1, .chunks = chosen.parts});
  }
  return all;
}

std::vector<NodesInChunks> PartsChoice::faster() const {
  std::vector<NodesInChunks> all = smallest();
  for (NodesInChunks& node : all) {
    std::vector<Option> faster = options_.at(node.first);
    const double seconds = best(faster, 0).seconds;
    std::erase_if(faster, [&](const Option& o) { return o.seconds >= seconds; });
    if (!faster.empty()) node.chunks = best(faster, 0).parts;
  }
  return all;
}

std::vector<NodesInChunks> PartsChoice::of(const Plan& plan) const {
  std::vector<NodesInChunks> all = smallest();
  for (NodesInChunks& node : all) node.chunks = plan.chunks.value_or(node.first, 1);
  return all;
}

FoundPlan PartsChoice::within(const SearchedStep& step, FoundPlan found, size_t bytes) const {
  found.plan = with_parts(std::move(found.plan), smallest());
  std::map<NodeId, size_t> live;
  const RehearsedStep rehearsed = step.rehearse(found.plan, std::nullopt, {.survey = true});
  for (const SurveyedWork& w : rehearsed.survey.works) {
    const auto at = options_.find(w.node);
    if (w.phase != Phase::backward || at == options_.end()) continue;
    const size_t own = best(at->second, 0).bytes;
    live[w.node] = std::max({live[w.node], w.live_before, w.live - std::min(w.live, own)});
  }
  // Holes of a layout may take what a count of live bytes leaves.
  constexpr size_t tries = 64;
  for (size_t room = bytes; room > 0; room -= std::min(room, ceil_div(bytes, tries))) {
    Plan plan = with_parts(found.plan, within(live, room));
    if (plan == found.plan) break;
    FoundPlan faster = lay_out_plan(step, std::move(plan), found.loss_rows);
    faster.peak = std::max(faster.peak, step.other_peak(faster.plan));
    faster.binding = found.binding;
    if (faster.peak <= bytes) return faster;
  }
  return found;
}

}  // namespace spool
