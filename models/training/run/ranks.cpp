// Ranks give each other what they compare and plan as JSON.

#include "spool/models/training/run/ranks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "spool/models/formats/checkpoint_mark.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/training/sharding_choice.h"
#include "spool/planner/machines/matmul_table.h"
#include "spool/planner/plan_json.h"
#include "spool/runtime/cpu/usable_cores.h"
#include "spool/runtime/files/json.h"
#include "spool/runtime/ranks/launcher.h"
#include "spool/runtime/ranks/run_ranks.h"
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
    const std::string_view name = text.substr(0, equals);
    const bool is_of_rank = name == rank_variables::rank || name == rank_variables::ranks ||
                            name == rank_variables::job;
    if (!name.starts_with("SPOOL_") || equals == std::string_view::npos || is_of_rank) continue;
    all[std::string(name)] = text.substr(equals + 1);
  }
  return all;
}

// The machine and the processors that this process may use, which ranks may share.
std::string own_processors() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ::sched_getaffinity(0, sizeof mask, &mask);
  std::string text = host.data();
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) text += sentence(" ", cpu);
  }
  return text;
}

// Ranks on the machine that has most of them.
int most_of_a_machine(const std::vector<std::string>& processors) {
  std::map<std::string, int> ranks;
  for (const std::string& of_rank : processors) ++ranks[of_rank.substr(0, of_rank.find(' '))];
  int most = 0;
  for (const auto& [machine, count] : ranks) most = std::max(most, count);
  return most;
}

json settings_of(const RunSetup& run) {
  const TrainingConfig& t = run.options.training;
  return {{"version", sentence(version(), " ", commit())},
          {"settings", configuration(run.options)},
          {"data", run.data->fingerprint()},
          {"steps done", run.first_step},
          {"zero", t.zero},
          {"ranks", t.ranks},
          {"mesh", run.options.mesh},
          {"shard", run.options.shard},
          {"kind of device", name(run.options.device.type)},
          {"threads", run.options.threads},
          {"graphs of steps", run.options.graph},
          {"trace of a step", run.trace != nullptr},
          {"environment", own_environment()}};
}

json plan_of(const RunSetup& run) {
  const Report& foretold = run.planned.foretold;
  return {{"plan", to_json(StoredPlan{.plan = run.planned.plans.step})},
          {"foretold peak", foretold.memory.peak},
          {"foretold peak of the host", foretold.host.peak},
          {"the exchanges of a step", hash_in_words(run.planned.exchange->order)},
          {"the layout of a step", hash_in_words(run.planned.exchange->layout)}};
}

// Values that are objects are compared member by member, so that the first difference is named.
void compare_values(const std::string& what, const json& first, const json& other, size_t rank) {
  if (first == other) return;
  if (first.is_object() && other.is_object()) {
    for (const auto& [name, value] : first.items()) {
      compare_values(sentence(what, " ", name), value, other.value(name, json()), rank);
    }
    for (const auto& [name, value] : other.items()) {
      if (!first.contains(name)) compare_values(sentence(what, " ", name), json(), value, rank);
    }
  }
  const auto said = [](const json& v) { return v.is_null() ? "none" : sentence(excerpt(v)); };
  fail(ErrorKind::invalid, "rank 0 and rank ", rank, " differ in", what, ": ", said(first), " and ",
       said(other), "; all ranks of a run need the same");
}

void compare(const RunSetup& run, const json& own) {
  const std::vector<std::string> all = run.ranks->gather("comparison", own.dump());
  const json first = json::parse(all.front());
  for (size_t r = 1; r < all.size(); ++r) compare_values("", first, json::parse(all[r]), r);
}

// By which it then exchanges.
void take_gpu(RunOptions& o, std::shared_ptr<Communicator>& ranks) {
  o.device = gpu_of_rank(*ranks);
  const bool share_micro_batches = o.training.neighbours() > 1;
  ranks = share_micro_batches ? connected(ranks, o.device) : on_device(ranks, o.device);
  for (const std::string& theirs :
       ranks->gather("memory of NCCL", std::to_string(ranks->taken_bytes()))) {
    o.exchange_bytes = std::max<size_t>(o.exchange_bytes, std::stoull(theirs));
  }
  find_least_memory(o, ranks.get());
}

json rows_to_json(const ChunkRows& rows) { return {{"loss", rows.loss}, {"mlp", rows.mlp}}; }

}  // namespace

std::shared_ptr<Communicator> connected(const std::shared_ptr<Communicator>& ranks, Device device) {
  std::shared_ptr<Communicator> of_device = on_device(ranks, device);
  of_device->connect();
  return of_device;
}

size_t least_of_ranks(size_t bytes, Communicator& ranks) {
  for (const std::string& theirs : ranks.gather("memory", std::to_string(bytes))) {
    bytes = std::min<size_t>(bytes, std::stoull(theirs));
  }
  return bytes;
}

void find_least_memory(RunOptions& o, Communicator* ranks) {
  if (!ranks || o.device.type != DeviceType::cuda) return;
  o.least_memory = least_of_ranks(device_memory(o.device), *ranks);
}

void give_part_of_machine(RunOptions& o, std::shared_ptr<Communicator>& ranks) {
  if (o.training.ranks == 0) return;
  const bool has_gpus = o.device.type == DeviceType::cuda;
  o.sharers = o.ranks_here = o.training.ranks;
  if (ranks) {
    const std::string own = own_processors();
    const std::vector<std::string> all = ranks->gather("processors", own);
    o.sharers = static_cast<int>(std::ranges::count(all, own));
    o.ranks_here = most_of_a_machine(all);
  }
  const bool is_given = o.threads > 0;
  if (!is_given) o.threads = std::max(usable_cores() / o.sharers, 1);
  if (!ranks) return;
  // Ranks compute alike, also where a launcher binds one to fewer processors.
  for (const std::string& theirs : ranks->gather("threads", std::to_string(o.threads))) {
    if (!is_given) o.threads = std::min(o.threads, std::stoi(theirs));
  }
  if (has_gpus) take_gpu(o, ranks);
}

void share_split(TrainingConfig& config, Communicator& ranks) {
  const json own{{"batch", config.batch}, {"accumulate", config.accumulate}};
  const std::string text = ranks.gather("micro-batches", own.dump()).front();
  const JsonField of_first = parse_json(text, "the micro-batches of rank 0");
  config.batch = of_first.member("batch").integer<int64_t>();
  config.accumulate = of_first.member("accumulate").integer<int64_t>();
}

void give_plan(const RunSetup& run) {
  const TrainingConfig& config = run.planned.config;
  const Link& link = run.machine.mesh.link;
  const json plan{{"plan", to_json(StoredPlan{.plan = run.planned.plans.step})},
                  {"loss_rows", config.chunks.loss_rows},
                  {"mlp_rows", config.chunks.mlp_rows},
                  {"nodes", to_json(config.chunks.nodes)},
                  {"evaluation", rows_to_json(config.evaluation.value_or(ChunkRows{}))},
                  {"budget", run.planned.budget},
                  {"link", {link.seconds, link.bytes_per_second}},
                  {"products", to_json(run.products)},
                  {"shards", run.planned.sharding ? shards_text(describe_step(config)) : ""}};
  run.ranks->gather("plan", plan.dump());
}

void take_plan(RunSetup& run) {
  RunOptions& o = run.options;
  const std::string text = run.ranks->gather("plan", "").front();
  const JsonField file = parse_json(text, "the plan of rank 0");
  const auto rows = [](const JsonField& field) { return field.integer<int64_t>(); };
  TrainingConfig& config = o.training;
  config.chunks = {.loss_rows = rows(file.member("loss_rows")),
                   .mlp_rows = rows(file.member("mlp_rows")),
                   .nodes = nodes_in_chunks_from_json(file.member("nodes"))};
  if (const std::string chosen = file.member("shards").string(); !chosen.empty()) {
    config.shards =
        parse_shards(chosen, "the shards of rank 0", describe_step(config), o.shard_axes);
  }
  const JsonField evaluation = file.member("evaluation");
  config.evaluation = {.loss = rows(evaluation.member("loss")),
                       .mlp = rows(evaluation.member("mlp"))};
  const std::vector<JsonField> link = file.member("link").items();
  run.machine.mesh.link = {.seconds = link.at(0).number(), .bytes_per_second = link.at(1).number()};
  run.products = matmul_algorithms_from_json(file.member("products"));
  RunRequest request = request_of(o, run.machine, plan_from_json(file.member("plan")).plan);
  request.steps.choose.emplace();
  request.steps.budget = file.member("budget").integer<size_t>();
  request.compares = false;
  run.planned = RunPlanner(config, request, run.sample.length, run.machine).plan();
  if (run.planned.refusal) throw *run.planned.refusal;
  config = run.planned.config;
}

void compare_settings(const RunSetup& run) {
  if (run.ranks) compare(run, settings_of(run));
}

void compare_plans(const RunSetup& run) {
  if (run.ranks) compare(run, plan_of(run));
}

void tell_ranks(const RunSetup& run, int64_t steps_done) {
  if (!run.ranks) return;
  const ExchangeForetold& of_step = *run.planned.exchange;
  const auto steps = static_cast<size_t>(steps_done - run.first_step);
  const RankNumbers own{.rank = run.ranks->rank(),
                        .peak = run.stream->memory().peak,
                        .foretold_peak = run.planned.foretold.memory.peak,
                        .host_peak = run.trainer->host_memory().peak,
                        .foretold_host_peak = run.planned.foretold.host.peak,
                        .sent = run.ranks->sent(),
                        .foretold_sent = steps * of_step.sent_bytes,
                        .exchange_seconds = run.ranks->seconds(),
                        .exposed_seconds = static_cast<double>(steps) * of_step.exposed_seconds};
  std::vector<RankNumbers> all;
  for (const std::string& theirs :
       run.ranks->gather("numbers", {reinterpret_cast<const char*>(&own), sizeof own})) {
    theirs.copy(reinterpret_cast<char*>(&all.emplace_back()), sizeof own);
  }
  run.listeners->ranks(steps_done, all);
}

}  // namespace spool
