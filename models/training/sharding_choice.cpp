#include "spool/models/training/sharding_choice.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/autograd/sharding/sharded_model.h"
#include "spool/models/steps/exchange/buckets_choice.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/models/training/run_options.h"

namespace spool {
namespace {

constexpr double alike = 0.995;

// What a rank would compute of each micro-batch alone; the program names parameters of the model.
struct Recorded {
  explicit Recorded(const TrainingConfig& config)
      : model(describe_step(config).make_model(stream)) {}

  MetaStream stream{Machine{}};
  std::unique_ptr<StepModel> model;
  const Program program = record_loss(*model, stream).program;
};

TrainingConfig with_shards(TrainingConfig config, const StepShards& shards) {
  config.shards = shards;
  return config;
}

// Each keeps all.
std::vector<JudgedSharding> rehearsed(const TrainingConfig& config, const std::string& axes,
                                      const Program& program,
                                      const std::vector<ShardCandidate>& candidates,
                                      const Policy& policy, const Machine& machine) {
  std::vector<JudgedSharding> all;
  for (const ShardCandidate& c : candidates) {
    JudgedSharding judged{.name = c.name, .shards = shards(axes, program, c.choice.how)};
    const TrainingConfig cut = with_shards(config, judged.shards);
    const StepDescription step = describe_step(cut);
    StepPlans plans{.step = plan_step(step, with_chunks(policy, cut.chunks_of_tape()), machine)};
    // A plan may have more buckets in flight, and no step is faster than with many.
    if (cut.replicas() > 1) plans.step.buckets_in_flight = most_buckets_in_flight;
    KeptModels kept;
    const Report report = foretell_step(step, plans, machine, {}, &kept);
    judged.seconds = report.seconds;
    judged.peak = report.memory.peak;
    all.push_back(std::move(judged));
  }
  std::ranges::stable_sort(all, {}, &JudgedSharding::seconds);
  return all;
}

// Plans candidates in the order of the seconds that are expected of them: those of a step that
// keeps all, or, where that does not fit, what the planner expects before it searches.
class Chooser {
 public:
  Chooser(const TrainingConfig& config, const RunRequest& request, const SampleLength& sample,
          const Machine& machine)
      : config_(config), request_(request), sample_(sample), machine_(machine) {}

  void plan_candidates(ShardingChoice& choice) {
    std::vector<Candidate> left;
    for (JudgedSharding& judged : choice.all) {
      left.push_back({.judged = &judged, .expected = judged.seconds, .bound = judged.seconds});
    }
    while (!left.empty()) {
      const auto next = std::ranges::min_element(left, {}, &Candidate::expected);
      if (!next->planner && !is_hopeless(*next)) {
        look_closer(*next);
        continue;
      }
      Candidate candidate = std::move(*next);
      left.erase(next);
      if (!is_hopeless(candidate)) plan(std::move(candidate), choice);
    }
  }

  ChosenRun best() { return std::move(best_); }

 private:
  struct Candidate {
    JudgedSharding* judged = nullptr;
    double expected = 0, bound = 0;  // seconds
    std::unique_ptr<RunPlanner> planner = {};
  };

  bool fits() const { return best_.planner && !best_.run.refusal; }

  // Whether it is not to be planned: a policy by hand, if it cannot be faster; what was found, if
  // it is not expected to be faster by half a percent.
  bool is_hopeless(const Candidate& candidate) const {
    if (!fits()) return false;
    const bool is_by_hand = spool::parse<ShardPolicy>(candidate.judged->name).has_value();
    const double fastest = best_.run.foretold.seconds;
    return is_by_hand ? candidate.bound >= fastest : candidate.expected >= alike * fastest;
  }

  // With replicas, what a planner expects is for some number of buckets in flight.
  void look_closer(Candidate& candidate) const {
    candidate.planner = std::make_unique<RunPlanner>(with_shards(config_, candidate.judged->shards),
                                                     request_, sample_, machine_);
    const size_t room = request_.steps.budget ? request_.steps.budget : request_.steps.free;
    if (config_.replicas() > 1 || candidate.judged->peak <= room) return;
    StepPlanner& steps = candidate.planner->steps();
    candidate.expected = std::max(candidate.expected, steps.expected_seconds());
    candidate.bound = std::max(candidate.bound, steps.lower_bound());
  }

  void plan(Candidate candidate, ShardingChoice& choice) {
    JudgedSharding& judged = *candidate.judged;
    PlannedRun run = candidate.planner->plan_only();
    judged.planned = {
        .fits = !run.refusal, .seconds = run.foretold.seconds, .peak = run.foretold.memory.peak};
    if (best_.planner && !is_better(run)) return;
    best_ = {std::move(candidate.planner), std::move(run)};
    choice.chosen = static_cast<size_t>(&judged - choice.all.data());
  }

  // The faster one of those that fit, else the smaller one.
  bool is_better(const PlannedRun& run) const {
    const Report &other = run.foretold, &best = best_.run.foretold;
    if (!run.refusal) return !fits() || other.seconds < best.seconds;
    return !fits() && other.memory.peak < best.memory.peak;
  }

  const TrainingConfig& config_;
  const RunRequest& request_;
  const SampleLength& sample_;
  const Machine& machine_;
  ChosenRun best_ = {};
};

struct Chosen {
  ShardingChoice choice = {};
  ChosenRun best = {};
};

Chosen choose(const TrainingConfig& config, const std::string& axes, const RunRequest& request,
              const SampleLength& sample, const Machine& machine) {
  const double start = host_clock();
  const MeshAxes mesh = parse_mesh(axes);
  const Recorded recorded(config);
  const Program& program = recorded.program;
  const MeshMachine of_ranks{.machine = machine, .links = links_of_axes(machine.mesh, mesh)};
  ShardCandidates candidates = shard_candidates(program, mesh, of_ranks);
  Chosen chosen{.choice = {.all = rehearsed(config, axes, program, candidates.all,
                                            request.steps.given_policy(), machine),
                           .refused = std::move(candidates.refused)}};
  Chooser chooser(config, request, sample, machine);
  chooser.plan_candidates(chosen.choice);
  chosen.best = chooser.best();
  chosen.choice.search_seconds = host_clock() - start;
  return chosen;
}

void tell_choice(PlannedRun& run, ShardingChoice choice) {
  if (run.refusal) {
    const Error& why = *run.refusal;
    run.refusal = Error(why.kind(),
                        sentence("of ", choice.all.size(), " ways to cut the ops '",
                                 choice.best().name, "' takes fewest bytes: ", why.what()),
                        why.fields());
  }
  run.sharding = std::make_shared<const ShardingChoice>(std::move(choice));
}

}  // namespace

ShardingChoice choose_sharding(const TrainingConfig& config, const std::string& axes,
                               const RunRequest& request, const SampleLength& sample,
                               const Machine& machine) {
  return choose(config, axes, request, sample, machine).choice;
}

nlohmann::json to_json(const ShardingChoice& choice) {
  using nlohmann::json;
  json candidates = json::array(), refused = json::array();
  for (const JudgedSharding& judged : choice.all) {
    const auto& planned = judged.planned;
    candidates.push_back({{"name", judged.name},
                          {"foretold_step_ms", 1e3 * (planned ? planned->seconds : judged.seconds)},
                          {"foretold_peak_bytes", planned ? planned->peak : judged.peak},
                          {"planned", planned.has_value()},
                          {"feasible", planned ? json(planned->fits) : json(nullptr)}});
  }
  for (const ShardCandidates::Refused& one : choice.refused) {
    refused.push_back({{"name", one.name}, {"why", one.why}});
  }
  return {{"chosen", choice.best().name},
          {"search_seconds", choice.search_seconds},
          {"candidates", candidates},
          {"refused", refused}};
}

ChosenRun plan_and_choose(RunOptions& o, const RunRequest& request, const SampleLength& sample,
                          const Machine& machine) {
  if (o.shard_axes.empty() || o.shard != name(ShardPolicy::automatic)) {
    ChosenRun given{.planner = std::make_unique<RunPlanner>(o.training, request, sample, machine)};
    given.run = given.planner->plan();
    return given;
  }
  check_setting(!request.steps.plan, {"plan", "shard"},
                "a plan is of one way to cut ops, and another may be chosen; give the policy, or "
                "the file of save-shard, with which it was made");
  auto [choice, chosen] = choose(o.training, o.shard_axes, request, sample, machine);
  o.training.shards = choice.best().shards;
  chosen.planner->compare(chosen.run);
  tell_choice(chosen.run, std::move(choice));
  return std::move(chosen);
}

}  // namespace spool
