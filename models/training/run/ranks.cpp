// Ranks give each other what they compare and plan as JSON.

#include "spool/models/training/run/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "spool/planner/machines/links.h"
#include "spool/planner/plan_json.h"
#include "spool/runtime/cpu/usable_cores.h"
#include "spool/runtime/files/json.h"
#include "spool/runtime/version.h"

namespace spool {
namespace {

using nlohmann::json;

// What SPOOL_... variables say: some change how work is done.
json own_environment() {
  json all = json::object();
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("SPOOL_") || equals == std::string_view::npos) continue;
    all[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return all;
}

json comparison(const RunSetup& run) {
  const TrainingConfig& t = run.options.training;
  const Report& foretold = run.planned.foretold;
  return {{"version", sentence(version(), " ", commit())},
          {"settings", configuration(run.options)},
          {"data", run.data->fingerprint()},
          {"steps done", run.first_step},
          {"zero", t.zero},
          {"ranks", t.ranks},
          {"kind of device", name(run.options.device.type)},
          {"threads", run.options.threads},
          {"environment", own_environment()},
          {"plan", to_json(StoredPlan{.plan = run.planned.plans.step})},
          {"foretold peak", foretold.memory.peak},
          {"foretold peak of the host", foretold.host.peak},
          {"buckets in flight", run.planned.plans.buckets_in_flight}};
}

json rows_to_json(const ChunkRows& rows) { return {{"loss", rows.loss}, {"mlp", rows.mlp}}; }

}  // namespace

void give_part_of_machine(RunOptions& o) {
  if (o.training.ranks == 0) return;
  check_setting(o.device.type == DeviceType::cpu, {"ranks", "device"},
                "ranks on GPUs are not there yet; choose the cpu, or one GPU without ranks");
  if (o.threads == 0) o.threads = std::max(usable_cores() / o.training.ranks, 1);
}

Mesh mesh_of_threads(int ranks, int rank, const Machine& machine) {
  return {.ranks = ranks, .rank = rank, .link = link_by_memory(machine.bytes_per_second)};
}

void give_plan(const RunSetup& run) {
  const TrainingConfig& config = run.planned.config;
  const json plan{{"plan", to_json(StoredPlan{.plan = run.planned.plans.step})},
                  {"batch", config.batch},
                  {"accumulate", config.accumulate},
                  {"loss_rows", config.chunks.loss_rows},
                  {"mlp_rows", config.chunks.mlp_rows},
                  {"nodes", to_json(config.chunks.nodes)},
                  {"evaluation", rows_to_json(config.evaluation.value_or(ChunkRows{}))},
                  {"budget", run.planned.budget}};
  run.ranks->gather("plan", plan.dump());
}

void take_plan(RunSetup& run) {
  RunOptions& o = run.options;
  const std::string text = run.ranks->gather("plan", "").front();
  const JsonField file = parse_json(text, "the plan of rank 0");
  const auto rows = [](const JsonField& field) { return field.integer<int64_t>(); };
  TrainingConfig& config = o.training;
  config.batch = rows(file.member("batch"));
  config.accumulate = rows(file.member("accumulate"));
  config.chunks = {.loss_rows = rows(file.member("loss_rows")),
                   .mlp_rows = rows(file.member("mlp_rows")),
                   .nodes = nodes_in_chunks_from_json(file.member("nodes"))};
  const JsonField evaluation = file.member("evaluation");
  config.evaluation = {.loss = rows(evaluation.member("loss")),
                       .mlp = rows(evaluation.member("mlp"))};
  run.machine.architecture = open_stream(o.device, Arena::granule, o.threads)->architecture();
  run.machine.mesh = mesh_of_threads(run.ranks->size(), run.ranks->rank(), run.machine);
  RunRequest request = request_of(o, run.machine, plan_from_json(file.member("plan")).plan);
  request.steps.choose.emplace();
  request.steps.budget = file.member("budget").integer<size_t>();
  request.compares = false;
  run.planned = RunPlanner(config, request, run.sample.length, run.machine).plan();
  if (run.planned.refusal) throw *run.planned.refusal;
  config = run.planned.config;
}

void compare_ranks(const RunSetup& run) {
  const std::vector<std::string> all = run.ranks->gather("comparison", comparison(run).dump());
  const json first = json::parse(all.front());
  for (size_t r = 1; r < all.size(); ++r) {
    const json other = json::parse(all[r]);
    for (const auto& [what, value] : first.items()) {
      const json theirs = other.value(what, json());
      check(theirs == value, "rank 0 and rank ", r, " differ in ", what, ": ", excerpt(value),
            " and ", excerpt(theirs));
    }
  }
}

}  // namespace spool
