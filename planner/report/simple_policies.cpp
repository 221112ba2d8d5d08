#include "spool/planner/report/simple_policies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "spool/planner/offsets.h"
#include "spool/planner/search/measured_options.h"

namespace spool {
namespace {

size_t root_of(size_t blocks) {
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(blocks))));
}

// Adds the regions; an outer one comes before those in it.
void recompute_segments(const std::vector<TapeScope>& blocks, size_t each, Plan& plan) {
  for (size_t first = 0; first < blocks.size(); first += each) {
    const size_t last = std::min(first + each, blocks.size()) - 1;
    plan.regions.push_back({.first = blocks[first].first, .last = blocks[last].last});
  }
  sort_regions(plan);
}

class SimplePolicies {
 public:
  explicit SimplePolicies(const SearchedStep& step)
      : step_(step), kept_(step.rehearse_tape({})), blocks_(blocks_of(kept_.program)) {}

  std::vector<SimplePolicy> all() {
    add_named();
    add_subsets();
    add_segments();
    add_by_seconds_per_byte();
    return std::move(all_);
  }

 private:
  const Program& program() const { return kept_.program; }

  void add(SimpleRule rule, std::string name, Plan plan) {
    all_.push_back({.rule = rule, .name = std::move(name), .plan = std::move(plan)});
  }
  Plan keep_all() const {
    Plan plan;
    plan.placement.assign(program().values.size(), Placement::keep);
    return plan;
  }

  // The plan for the first blocks alone; the others keep all.
  Plan of_first_blocks(Plan plan, size_t blocks) const {
    const NodeId last = blocks_[blocks - 1].last;
    for (ValueId v = 0; v < plan.placement.next_id(); ++v) {
      if (program().values[v].producer > last) plan.placement[v] = Placement::keep;
    }
    std::erase_if(plan.regions, [&](const Region& r) { return r.last > last; });
    return plan;
  }

  void add_named() {
    constexpr std::array lists{
        "none",      "norms",           "gelu",           "norms,gelu",
        "attention", "norms,attention", "gelu,attention", "norms,gelu,attention",
        "block"};
    for (const char* list : lists) {
      Policy policy;
      set_recompute(policy, list);
      Plan plan = plan_from_policy(policy, step_.machine, step_.rehearse_tape);
      for (size_t k = 1; k < blocks_.size() && list != lists.front(); ++k) {
        add(SimpleRule::first_blocks, sentence(list, " of ", k, " layers"),
            of_first_blocks(plan, k));
      }
      add(SimpleRule::uniform, list, std::move(plan));
    }
    std::ranges::stable_sort(all_, {}, &SimplePolicy::rule);
  }

  // Adds the subsets for the most frequent kind of segments.
  void add_subsets() {
    const std::vector<Segment> segments = segments_of(program());
    std::map<int, std::vector<const Segment*>> by_kind;
    for (const Segment& s : segments) by_kind[s.kind].push_back(&s);
    const auto size = [](const auto& kind) { return kind.second.size(); };
    const auto& alike = std::ranges::max_element(by_kind, {}, size)->second;
    int number = 0;
    for (const SegmentOption& option : recompute_options(program(), *alike.front())) {
      if (option.recomputed.empty()) continue;
      Plan plan = keep_all();
      for (const Segment* s : alike) apply(option, program(), *s, plan);
      add(SimpleRule::uniform, sentence("subset ", ++number), std::move(plan));
    }
  }

  void add_segments() {
    for (const size_t each : std::set<size_t>{2, 3, 4, 6, root_of(blocks_.size())}) {
      Plan plan = keep_all();
      recompute_segments(blocks_, each, plan);
      add(SimpleRule::segments, sentence("segments of ", each, " layers"), std::move(plan));
    }
  }

  // The ops whose outputs backward reads, by rising seconds per byte of these.
  std::vector<NodeId> by_seconds_per_byte() const {
    IdTable<NodeId, double> bytes(program().nodes.size()), cost(program().nodes.size());
    std::vector<NodeId> order;
    for (ValueId v = 0; v < kept_.survey.values.next_id(); ++v) {
      const NodeId n = program().values[v].producer;
      if (n < 0 || kept_.survey.values[v].first_saved < 0) continue;
      if (!program().nodes[n].op->recomputable()) continue;
      if (bytes[n] == 0) order.push_back(n);
      bytes[n] += static_cast<double>(kept_.survey.values[v].bytes);
    }
    for (const SurveyedWork& work : kept_.survey.works) {
      if (work.phase == Phase::forward && work.node >= 0) cost[work.node] += work.seconds;
    }
    // Equal layers have equal costs but for rounding.
    const auto rounded = [&](NodeId n) { return std::round(1e20 * cost[n] / bytes[n]); };
    std::ranges::stable_sort(order, {}, rounded);
    return order;
  }

  void add_by_seconds_per_byte() {
    const std::vector<NodeId> order = by_seconds_per_byte();
    Plan plan = keep_all();
    for (size_t i = 0; i < order.size(); ++i) {
      for (const ValueId v : program().nodes[order[i]].outputs) {
        plan.placement[v] = Placement::recompute;
      }
      add(SimpleRule::seconds_per_byte, sentence("the cheapest ", i + 1), plan);
    }
  }

  const SearchedStep& step_;
  RehearsedTape kept_;
  std::vector<TapeScope> blocks_;
  std::vector<SimplePolicy> all_;
};

}  // namespace

std::vector<SimplePolicy> simple_policies(const SearchedStep& step) {
  return SimplePolicies(step).all();
}

std::vector<SimplePolicy> policies_by_hand(const SearchedStep& step, const Policy& rest) {
  std::vector<SimplePolicy> all;
  const auto add = [&](SimpleRule rule, std::string name, Plan plan) {
    if (std::ranges::find(all, plan, &SimplePolicy::plan) != all.end()) return;
    all.push_back({.rule = rule, .name = std::move(name), .plan = std::move(plan)});
  };
  const auto plan_of = [&](const char* list) {
    Policy policy = rest;
    set_recompute(policy, list);
    return plan_from_policy(policy, step.machine, step.rehearse_tape);
  };
  const Plan kept = plan_of("none");
  add(SimpleRule::uniform, "keep all", kept);
  for (const char* list : {"norms", "gelu", "norms,gelu", "attention", "norms,gelu,attention"}) {
    add(SimpleRule::uniform, sentence("recompute ", list), plan_of(list));
  }
  add(SimpleRule::uniform, "recompute every layer", plan_of("block"));
  const std::vector<TapeScope> blocks = blocks_of(step.rehearse_tape({}).program);
  for (const size_t each : std::set<size_t>{2, 3, root_of(blocks.size())}) {
    if (each < 2 || each >= blocks.size()) continue;
    Plan plan = kept;
    recompute_segments(blocks, each, plan);
    add(SimpleRule::segments, sentence("recompute segments of ", each, " layers"), std::move(plan));
  }
  return all;
}

std::vector<SimplePolicy> offloading_policies(const SearchedStep& step, OffloadTarget target) {
  std::vector<SimplePolicy> all;
  for (const char* list : {"none", "norms,gelu", "block"}) {
    for (const Offloading offloaded : enumerators<Offloading>()) {
      for (const OptimizerState state : {OptimizerState::device, OptimizerState::streamed}) {
        if (offloaded == Offloading::none && state == OptimizerState::device) continue;
        Policy policy{.offload = offloaded, .target = target, .optimizer_state = state};
        set_recompute(policy, list);
        all.push_back(
            {.rule = SimpleRule::offloading,
             .name = sentence(list, ", offload ", name(offloaded), ", state ", name(state)),
             .plan = plan_from_policy(policy, step.machine, step.rehearse_tape)});
      }
    }
  }
  return all;
}

FoundPlan lay_out_plan(const SearchedStep& step, Plan plan, int64_t loss_rows) {
  const auto rehearse = [&](const std::optional<Layout>& layout, const RehearsalOptions& asked) {
    return step.rehearse(plan, layout, asked);
  };
  RehearsedStep rehearsed = rehearse({}, {.survey = true, .lifetimes = true});
  FoundPlan found{.loss_rows = loss_rows,
                  .peak = rehearsed.report.memory.peak,
                  .host_bytes = rehearsed.report.host.peak,
                  .disk_bytes = rehearsed.report.disk.peak,
                  .seconds = step_seconds(rehearsed, step.micro_batches)};
  Layout layout = assign_offsets(std::move(rehearsed.lifetimes));
  const size_t placed = rehearse(layout, {}).report.memory.peak;
  if (placed < found.peak) {
    found.peak = placed;
    found.layout = std::move(layout);
  }
  found.plan = std::move(plan);
  return found;
}

}  // namespace spool
