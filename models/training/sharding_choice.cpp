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

// Of what was found only what may be faster by more than half a percent is planned.
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

}  // namespace

ShardingChoice choose_sharding(const TrainingConfig& config, const std::string& axes,
                               const RunRequest& given, const SampleLength& sample,
                               const Machine& machine) {
  const double start = host_clock();
  RunRequest request = given;
  request.compares = false;
  const MeshAxes mesh = parse_mesh(axes);
  const Recorded recorded(config);
  const Program& program = recorded.program;
  const MeshMachine of_ranks{.machine = machine, .links = links_of_axes(machine.mesh, mesh)};
  ShardCandidates candidates = shard_candidates(program, mesh, of_ranks);
  ShardingChoice choice{.all = rehearsed(config, axes, program, candidates.all,
                                         request.steps.given_policy(), machine),
                        .refused = std::move(candidates.refused)};
  const JudgedSharding *best = nullptr, *smallest = nullptr;
  for (JudgedSharding& judged : choice.all) {
    if (best && judged.seconds >= best->planned->seconds) break;
    const bool is_alike = best && judged.seconds >= alike * best->planned->seconds;
    if (is_alike && !spool::parse<ShardPolicy>(judged.name)) continue;
    RunPlanner planner(with_shards(config, judged.shards), request, sample, machine);
    const PlannedRun run = planner.plan();
    judged.planned = {
        .fits = !run.refusal, .seconds = run.foretold.seconds, .peak = run.foretold.memory.peak};
    if (judged.planned->fits) {
      if (!best || judged.planned->seconds < best->planned->seconds) best = &judged;
    } else if (!smallest || judged.planned->peak < smallest->planned->peak) {
      smallest = &judged;
    }
  }
  choice.chosen = static_cast<size_t>((best ? best : smallest) - choice.all.data());
  choice.search_seconds = host_clock() - start;
  return choice;
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

std::shared_ptr<const ShardingChoice> choose_sharding(RunOptions& o, const RunRequest& request,
                                                      const SampleLength& sample,
                                                      const Machine& machine) {
  if (o.shard_axes.empty() || o.shard != name(ShardPolicy::automatic)) return nullptr;
  check_setting(!request.steps.plan, {"plan", "shard"},
                "a plan is of one way to cut ops, and another may be chosen; give the policy, or "
                "the file of save-shard, with which it was made");
  auto choice = std::make_shared<ShardingChoice>(
      choose_sharding(o.training, o.shard_axes, request, sample, machine));
  o.training.shards = choice->best().shards;
  return choice;
}

void tell_choice(PlannedRun& run, std::shared_ptr<const ShardingChoice> choice) {
  if (choice && run.refusal) {
    const Error& why = *run.refusal;
    run.refusal = Error(why.kind(),
                        sentence("of ", choice->all.size(), " ways to cut the ops '",
                                 choice->best().name, "' takes fewest bytes: ", why.what()),
                        why.fields());
  }
  run.sharding = std::move(choice);
}

}  // namespace spool
