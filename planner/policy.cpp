#include "spool/planner/policy.h"

#include <algorithm>
#include <limits>

#include "spool/planner/chunks.h"
#include "spool/planner/offload_schedule.h"

namespace spool {
namespace {

struct Recomputable {
  std::string_view word;
  bool Policy::*flag;
};
constexpr Recomputable recomputable[] = {{"norms", &Policy::norms},
                                         {"gelu", &Policy::activations},
                                         {"activations", &Policy::activations},
                                         {"attention", &Policy::attention},
                                         {"block", &Policy::block},
                                         {"gathers", &Policy::gathers}};

bool recomputes(const Policy& policy, OpKind kind) {
  return (policy.norms && kind == OpKind::norm) ||
         (policy.activations && kind == OpKind::activation) ||
         (policy.attention && kind == OpKind::attention) ||
         (policy.gathers && kind == OpKind::gather);
}

void place_recomputed(const Policy& policy, const Program& program, Plan& plan) {
  plan.placement.assign(program.values.size(), Placement::keep);
  for (const Node& node : program.nodes) {
    const OpKind kind = node.op->kind();
    if (!recomputes(policy, kind) || !node.op->recomputable()) continue;
    for (const ValueId v : node.outputs) {
      const bool is_statistic = kind == OpKind::norm && v != node.outputs.front();  // small: kept
      if (!is_statistic) plan.placement[v] = Placement::recompute;
    }
  }
}

// Outer regions come before those in them.
void place_regions(const Policy& policy, const Program& program, Plan& plan) {
  plan.regions = regions_of(program, policy.in_chunks);
  if (policy.mlp_chunk > 0) {
    const std::vector<Region> mlps = chunk_mlps(program, policy.mlp_chunk);
    plan.regions.insert(plan.regions.end(), mlps.begin(), mlps.end());
  }
  for (const TapeScope& scope : program.scopes) {
    if (policy.block && scope.is_block()) plan.regions.push_back({scope.first, scope.last});
  }
  sort_regions(plan);
}

// Whether a block reads each value without computing it.
IdTable<ValueId, bool> block_inputs(const Program& program) {
  IdTable<ValueId, bool> is_input(program.values.size());
  for (const TapeScope& scope : program.scopes) {
    if (!scope.is_block()) continue;
    for (NodeId n = scope.first; n <= scope.last; ++n) {
      for (const ValueId v : program.nodes[n].inputs) {
        if (program.values[v].producer < scope.first) is_input[v] = true;
      }
    }
  }
  return is_input;
}

std::vector<OffloadCandidate> offload_candidates(const Policy& policy, const Program& program) {
  const IdTable<ValueId, bool> is_residual = block_inputs(program);
  std::vector<OffloadCandidate> candidates;
  for (ValueId id = 0; id < program.values.next_id(); ++id) {
    const Value& v = program.values[id];
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
                  "'; give none, or a list of norms, gelu (or activations), attention, block and "
                  "gathers");
    policy.*(known->flag) = true;
    at = comma + 1;
  }
}

std::string recompute_list(const Policy& policy) {
  std::string list;
  for (const auto& [word, flag] : recomputable) {
    const bool is_synonym = word == "activations";
    if (policy.*flag && !is_synonym) list.append(list.empty() ? "" : ",").append(word);
  }
  return list.empty() ? "none" : list;
}

Plan plan_from_policy(const Policy& policy, const Machine& machine, const RehearseTape& rehearse) {
  return plan_from_policy(policy, machine, rehearse({}).program, rehearse);
}

Plan plan_from_policy(const Policy& policy, const Machine& machine, const Program& kept,
                      const RehearseTape& rehearse) {
  Plan plan{.optimizer_state = policy.optimizer_state};
  place_recomputed(policy, kept, plan);
  place_regions(policy, kept, plan);
  if (policy.loss_chunk > 0) plan.chunks = chunk_rows(kept, policy.loss_chunk).chunks;
  plan = with_parts(std::move(plan), policy.in_chunks);
  if (policy.parameters_on_device || policy.update == UpdateTime::backward) {
    constexpr size_t all = std::numeric_limits<size_t>::max();
    const size_t staying = policy.parameters_on_device.value_or(all);
    HomesByHand homes{.bytes_on_device = staying, .update = policy.update};
    if (std::holds_alternative<CpuArchitecture>(machine.architecture)) {
      homes.ahead = 0;  // its processor copies, so that copies ahead hide nothing
      homes.units_leaving = 0.25;
    }
    place_homes(plan, kept, homes);
  }
  if (policy.offload == Offloading::none) return plan;
  const RehearsedTape tape = rehearse(plan);
  plan.offloads = schedule_offloads(offload_candidates(policy, tape.program), tape.survey, machine,
                                    policy.target);
  for (const Offload& o : plan.offloads) plan.placement[o.value] = Placement::offload;
  return plan;
}

}  // namespace spool
