#include "spool/models/training/plan_report.h"

#include <spdlog/fmt/fmt.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "spool/models/training/attention_methods.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

using nlohmann::json;

constexpr const char* format = "spool-plan-report";

json head() { return {{"format", format}, {"format_version", 1}}; }

double milliseconds(double seconds) { return 1e3 * seconds; }

bool has_bound(const PlannedRun& run) { return run.search->lower_bound > 0; }

json or_null(double above_zero) { return above_zero > 0 ? json(above_zero) : json(); }

json region_chunks(const Plan& plan) {
  json chunks = json::array();
  for (const NodesInChunks& nodes : nodes_in_chunks(plan)) chunks.push_back(nodes.chunks);
  return chunks;
}

json by_purpose(const Report& foretold) {
  json bytes = json::object();
  for (const Purpose p : enumerators<Purpose>()) {
    bytes[name(p)] = foretold.memory.at_peak_by[p];
  }
  return bytes;
}

json layers(const PlannedRun& run) {
  json all = json::array();
  for (const LayerGroup& group : explain(run)) {
    all.push_back({{"ranges", group.layers}, {"treatment", group.treatment}});
  }
  return all;
}

json attention_choice(const AttentionChoice& choice) {
  return {{"method", name(choice.method)}, {"why", choice.why()}};
}

// Null on a cpu, which has one.
json attention(const TrainingConfig& config, const Machine& machine) {
  const auto* architecture = std::get_if<CudaArchitecture>(&machine.architecture);
  if (!architecture) return {};
  const auto [forward, backward, parts] = attention_methods(config, *architecture);
  return {{"forward", attention_choice(forward)},
          {"backward", attention_choice(backward)},
          {"backward_parts", parts}};
}

size_t state_on_device(const PlannedRun& run) {
  const Plan& plan = run.plans.step;
  const bool is_there = plan.optimizer_state == OptimizerState::device;
  return is_there ? run.foretold.memory.at_peak_by[Purpose::optimizer] : plan.state_bytes_on_device;
}

// What a point of a frontier has, too.
json numbers(const PlannedRun& run) {
  return {{"budget_bytes", run.limit},
          {"foretold_peak_bytes", run.foretold.memory.peak},
          {"foretold_step_ms", milliseconds(run.foretold.seconds)},
          {"lower_bound_ms", or_null(milliseconds(run.search->lower_bound))},
          {"gap", has_bound(run) ? json(gap(run)) : json()},
          {"loss_chunk", run.config.loss_chunk},
          {"region_chunks", region_chunks(run.plans.step)}};
}

json refusal(const PlannedRun& run) {
  json report = head();
  report.update({{"error", run.refusal->what()},
                 {"budget_bytes", run.limit},
                 {"minimum_budget_bytes", run.foretold.memory.peak},
                 {"binding_op", run.search->found.binding}});
  return report;
}

bool is_report(const std::filesystem::path& path) {
  std::ifstream in(path);
  const json found = json::parse(in, nullptr, /*allow_exceptions=*/false);
  return found.is_object() && found.contains("format") && found["format"] == format;
}

}  // namespace

double gap(const PlannedRun& run) { return run.foretold.seconds / run.search->lower_bound - 1; }

json plan_report(const PlannedRun& run, const Machine& machine) {
  if (run.refusal) return refusal(run);
  json report = head();
  report.update(numbers(run));
  report.update({{"machine", machine.name},
                 {"keep_all_peak_bytes", run.search->keep_all_peak},
                 {"keep_all_step_ms", milliseconds(run.search->keep_all_seconds)},
                 {"plan_ms", milliseconds(run.search->plan_seconds)},
                 {"rehearsals", run.search->rehearsals},
                 {"fingerprint", fmt::format("{:016x}", step_fingerprints(run.config).back())},
                 {"state_bytes_on_device", state_on_device(run)},
                 {"host_bytes", run.foretold.host.peak},
                 {"peak_bytes_by_purpose", by_purpose(run.foretold)},
                 {"attention", attention(run.config, machine)},
                 {"layers", layers(run)}});
  return report;
}

json frontier_report(const std::vector<PlannedRun>& frontier) {
  json points = json::array();
  for (const PlannedRun& run : frontier) points.push_back(numbers(run));
  return points;
}

void check_report_file(const std::filesystem::path& path) {
  check_writable(path, {"json"});
  check_file_setting(!path_exists(path) || is_report(path), path, {"json"},
                     "exists already and is not a report of a plan; choose another name");
}

void write_report(const std::filesystem::path& path, const json& report) {
  check_report_file(path);
  write_text_file_atomically(path, report.dump(/*indent=*/2) + "\n");
}

}  // namespace spool
