#include "spool/planner/policy.h"

#include <algorithm>

#include "spool/planner/chunks.h"

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
    const bool again = (policy.norms && op.ends_with("_norm")) || (policy.gelu && op == "gelu") ||
                       (policy.attention && op == "attention");
    if (!again) continue;
    for (const ValueId v : node.outputs) {
      const bool is_small = op.ends_with("_norm") && v != node.outputs.front();  // its statistics
      if (!is_small) plan.placement[static_cast<size_t>(v)] = Placement::recompute;
    }
  }
  for (const TapeScope& scope : tape.scopes()) {
    if (policy.block && is_outermost(scope)) plan.regions.push_back({scope.first, scope.last});
  }
}

// ---------------------------------------------------------------------------------- offload

// A value on its way.
struct Journey {
  Offload how;
  double made = 0, needed = 0;  // seconds
  double copy = 0;              // seconds, one way
};

// Values that a block reads and does not make.
std::vector<bool> block_inputs(const Tape& tape) {
  std::vector<bool> is_input(tape.values().size());
  for (const TapeScope& scope : tape.scopes()) {
    if (!is_outermost(scope)) continue;
    for (NodeId n = scope.first; n <= scope.last; ++n) {
      for (const ValueId v : tape.nodes()[static_cast<size_t>(n)].inputs) {
        if (tape.values()[static_cast<size_t>(v)].producer < scope.first) {
          is_input[static_cast<size_t>(v)] = true;
        }
      }
    }
  }
  return is_input;
}

struct Candidate {
  ValueId value;
  size_t bytes;
};

std::vector<Candidate> candidates(const Policy& policy, const Tape& tape) {
  const std::vector<bool> residual = block_inputs(tape);
  std::vector<Candidate> all;
  for (size_t i = 0; i < tape.values().size(); ++i) {
    const Value& v = tape.values()[i];
    if (v.producer < 0 || v.spec.nbytes() < policy.min_offload_bytes) continue;
    if (policy.offload == Offloading::residual && !residual[i]) continue;
    all.push_back({static_cast<ValueId>(i), v.spec.nbytes()});
  }
  return all;
}

std::vector<Journey> journeys(const std::vector<Candidate>& all, const Survey& seen,
                              const Machine& machine, OffloadTarget target) {
  // What goes to a disk passes through the host, one after the other.
  const double seconds_a_byte =
      1 / machine.host_bytes_per_second +
      (target == OffloadTarget::disk ? 1 / machine.disk_bytes_per_second : 0);
  std::vector<Journey> list;
  for (const Candidate& c : all) {
    const NodeId read = seen.first_read[static_cast<size_t>(c.value)];
    if (read < 0) continue;  // nor, then, was it saved
    const auto after = static_cast<size_t>(seen.first_saved[static_cast<size_t>(c.value)]) + 1;
    list.push_back(
        {.how = {.value = c.value, .target = target},
         .made = after < seen.forward.size() ? seen.forward[after] : seen.backward.back(),
         .needed = seen.backward[static_cast<size_t>(read)],
         .copy = static_cast<double>(c.bytes) * seconds_a_byte});
  }
  return list;
}

// Copies out go one after the other; each is released before the first node that begins when it has
// gone.  What would only be gone when forward ends stays.
void place_releases(std::vector<Journey>& list, const Survey& seen) {
  std::ranges::sort(list, {}, &Journey::made);
  double free = 0;
  std::erase_if(list, [&](Journey& j) {
    const double gone = std::max(free, j.made) + j.copy;
    const auto at = std::ranges::lower_bound(seen.forward, gone);
    if (at == seen.forward.end()) return true;
    free = gone;
    j.how.release = static_cast<NodeId>(at - seen.forward.begin());
    return false;
  });
}

// Copies back go one after the other too, in the order of need: each begins at the latest place
// from which it, and those that follow, arrive in time, were they a quarter slower.
void place_fetches(std::vector<Journey>& list, const Survey& seen) {
  constexpr double caution = 1.25;
  std::ranges::sort(list, std::ranges::greater{}, &Journey::needed);
  double next_begins = seen.backward.front() + 1e9;
  for (Journey& j : list) {
    next_begins = std::min(next_begins, j.needed) - caution * j.copy;
    // Backward goes through the nodes from the last: their times fall with their numbers.
    const auto at = std::ranges::lower_bound(seen.backward, next_begins, std::ranges::greater{});
    const auto node = static_cast<NodeId>(at - seen.backward.begin());
    const auto last = static_cast<NodeId>(seen.backward.size()) - 1;
    j.how.fetch = std::min(node, last);
  }
}

void place_offloads(std::vector<Journey> list, const Survey& seen, Plan& plan) {
  place_releases(list, seen);
  place_fetches(list, seen);
  std::ranges::sort(list, {}, [](const Journey& j) { return j.how.value; });
  for (const Journey& j : list) {
    plan.placement[static_cast<size_t>(j.how.value)] = Placement::offload;
    plan.offloads.push_back(j.how);
  }
}

template <class Enum>
std::optional<Enum> parse(std::string_view text, std::initializer_list<Enum> all) {
  for (const Enum e : all) {
    if (text == name(e)) return e;
  }
  return {};
}

}  // namespace

void set_recompute(Policy& policy, std::string_view list) {
  for (const auto& [word, flag] : recomputable) policy.*flag = false;
  if (list == "none") return;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string_view given = list.substr(at, comma - at);
    const auto known = std::ranges::find(recomputable, given, &Recomputable::word);
    check(known != std::end(recomputable), "--recompute '", list, "': there is no '", given,
          "'; it is none, or a list of norms, gelu, attention and block");
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

std::optional<Offloading> parse_offloading(std::string_view text) {
  return parse(text, {Offloading::none, Offloading::residual, Offloading::all});
}

std::optional<OptimizerState> parse_optimizer_state(std::string_view text) {
  return parse(text, {OptimizerState::device, OptimizerState::streamed, OptimizerState::cpu});
}

Plan plan_from_policy(const Policy& policy, const Machine& machine,
                      const RehearsedTape& rehearsed) {
  Plan plan{.optimizer_state = policy.optimizer_state};
  rehearsed(machine, {}, [&](const Tape& tape) {
    place_recomputed(policy, tape, plan);
    if (policy.loss_chunk > 0) plan.chunks = chunk_rows(tape, policy.loss_chunk).chunks;
  });
  if (policy.offload == Offloading::none) return plan;
  Survey seen;
  std::vector<Candidate> might_go;
  const Plan kept = plan;
  rehearsed(machine, {.plan = kept, .survey = &seen},
            [&](const Tape& tape) { might_go = candidates(policy, tape); });
  place_offloads(journeys(might_go, seen, machine, policy.target), seen, plan);
  return plan;
}

}  // namespace spool
