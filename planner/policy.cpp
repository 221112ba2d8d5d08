#include "spool/planner/policy.h"

#include <algorithm>

#include "spool/planner/chunks.h"
#include "spool/planner/offload_schedule.h"

namespace spool {
namespace {

struct Recomputable {
  std::string_view word;
  bool Policy::*flag;
};
constexpr Recomputable recomputable[] = {{"norms", &Policy::norms},
                                         {"gelu", &Policy::gelu},
                                         {"attention", &Policy::attention},
                                         {"block", &Policy::block}};

bool is_outermost(const TapeScope& scope) { return scope.parent < 0 && scope.last >= scope.first; }

void place_recomputed(const Policy& policy, const Tape& tape, Plan& plan) {
  plan.placement.assign(tape.values().size(), Placement::keep);
  for (const Node& node : tape.nodes()) {
    const std::string_view op = node.op->name();
    const bool is_norm = op.ends_with("_norm");
    const bool recompute = (policy.norms && is_norm) || (policy.gelu && op == "gelu") ||
                           (policy.attention && op == "attention");
    if (!recompute) continue;
    for (const ValueId v : node.outputs) {
      const bool is_statistic = is_norm && v != node.outputs.front();  // small: kept
      if (!is_statistic) plan.placement[v] = Placement::recompute;
    }
  }
  for (const TapeScope& scope : tape.scopes()) {
    if (policy.block && is_outermost(scope)) plan.regions.push_back({scope.first, scope.last});
  }
}

// Whether a block reads each value without computing it.
IdTable<ValueId, bool> block_inputs(const Tape& tape) {
  IdTable<ValueId, bool> is_input(tape.values().size());
  for (const TapeScope& scope : tape.scopes()) {
    if (!is_outermost(scope)) continue;
    for (NodeId n = scope.first; n <= scope.last; ++n) {
      for (const ValueId v : tape.nodes()[n].inputs) {
        if (tape.values()[v].producer < scope.first) is_input[v] = true;
      }
    }
  }
  return is_input;
}

std::vector<OffloadCandidate> offload_candidates(const Policy& policy, const Tape& tape) {
  const IdTable<ValueId, bool> is_residual = block_inputs(tape);
  std::vector<OffloadCandidate> candidates;
  for (ValueId id = 0; id < tape.values().next_id(); ++id) {
    const Value& v = tape.values()[id];
    if (v.producer < 0 || v.spec.nbytes() < policy.min_offload_bytes) continue;
    if (policy.offload == Offloading::residual && !is_residual[id]) continue;
    candidates.push_back({.value = id, .bytes = v.spec.nbytes()});
  }
  return candidates;
}

}  // namespace

void set_recompute(Policy& policy, std::string_view list) {
  for (const auto& [word, flag] : recomputable) policy.*flag = false;
  if (list == "none") return;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string_view word = list.substr(at, comma - at);
    const auto known = std::ranges::find(recomputable, word, &Recomputable::word);
    check_setting(known != std::end(recomputable), {"recompute"}, "what to recompute, '", list,
                  "': there is no '", word,
                  "'; give none, or a list of norms, gelu, attention and block");
    policy.*(known->flag) = true;
    at = comma + 1;
  }
}

std::string recompute_list(const Policy& policy) {
  std::string list;
  for (const auto& [word, flag] : recomputable) {
    if (policy.*flag) list.append(list.empty() ? "" : ",").append(word);
  }
  return list.empty() ? "none" : list;
}

Plan plan_from_policy(const Policy& policy, const Machine& machine,
                      const RehearsedTape& rehearsed) {
  Plan plan{.optimizer_state = policy.optimizer_state};
  rehearsed(machine, {}, [&](const Tape& tape) {
    place_recomputed(policy, tape, plan);
    if (policy.loss_chunk > 0) plan.chunks = chunk_rows(tape, policy.loss_chunk).chunks;
  });
  if (policy.offload == Offloading::none) return plan;
  Survey survey;
  std::vector<OffloadCandidate> candidates;
  rehearsed(machine, {.plan = plan, .survey = &survey},
            [&](const Tape& tape) { candidates = offload_candidates(policy, tape); });
  plan.offloads = schedule_offloads(candidates, survey, machine, policy.target);
  for (const Offload& o : plan.offloads) plan.placement[o.value] = Placement::offload;
  return plan;
}

}  // namespace spool
