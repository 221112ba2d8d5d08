#include "spool/models/training/plan_report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "spool/models/steps/refusal.h"
#include "spool/models/training/attention_methods.h"
#include "spool/models/training/cuts_report.h"
#include "spool/models/training/home_report.h"
#include "spool/models/training/plan_words.h"
#include "spool/models/training/sharding_choice.h"
#include "spool/planner/report/copy_lanes.h"
#include "spool/planner/report/plan_grid.h"
#include "spool/planner/report/step_memory.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

using nlohmann::json;

constexpr const char* format = "spool-plan-report";

json head() { return {{"format", format}, {"format_version", 2}}; }

double milliseconds(double seconds) { return 1e3 * seconds; }

// Not where a machine's memory is not known.
bool has_limit(const PlannedSteps& run) { return run.limit < MetaStream::unlimited; }

bool has_bound(const PlannedSteps& run) { return run.search && run.search->lower_bound > 0; }

json region_chunks(const Plan& plan) {
  json chunks = json::array();
  for (const NodesInChunks& nodes : nodes_in_chunks(plan)) chunks.push_back(nodes.chunks);
  return chunks;
}

// What of the host's memory has something.
json host_by_purpose(const MemoryStats& host) {
  json bytes = json::object();
  for (const Purpose p : enumerators<Purpose>()) {
    if (host.at_peak_by[p] > 0) bytes[name(p)] = host.at_peak_by[p];
  }
  return bytes;
}

json by_purpose(const Report& foretold, bool has_ranks) {
  json bytes = json::object();
  for (const Purpose p : enumerators<Purpose>()) {
    const size_t of_purpose = foretold.memory.at_peak_by[p];
    const bool is_rare = p == Purpose::frozen || (p == Purpose::exchange && !has_ranks);
    if (of_purpose > 0 || !is_rare) bytes[name(p)] = of_purpose;
  }
  return bytes;
}

json value_json(const MemoryValue& value) {
  return {{"name", value.name},         {"layer", value.layer < 0 ? json() : json(value.layer)},
          {"category", value.category}, {"bytes", value.bytes},
          {"begin", value.begin},       {"end", value.end},
          {"until", value.until}};
}

json memory_json(const StepMemory& memory, const std::vector<StepPhase>& phases) {
  json values = json::array(), parts = json::array();
  for (const MemoryValue& value : memory.values) values.push_back(value_json(value));
  for (const StepPhase& phase : phases) {
    parts.push_back({{"name", phase.name}, {"begin_ms", phase.begin}, {"end_ms", phase.end}});
  }
  return {{"categories", memory.categories}, {"times_ms", memory.times},
          {"bytes", memory.bytes},           {"total_bytes", memory.total},
          {"peak_index", memory.peak},       {"phases", std::move(parts)},
          {"values", std::move(values)}};
}

json grid_json(const PlanGrid& grid) {
  json cells = json::array();
  for (const std::vector<GridCell>& row : grid.cells) {
    json names = json::array();
    for (const GridCell cell : row) names.push_back(name(cell));
    cells.push_back(std::move(names));
  }
  return {{"rows", grid.rows}, {"layers", grid.layers}, {"cells", std::move(cells)}};
}

json lanes_json(const std::vector<LaneCopy>& copies) {
  json all = json::array();
  for (const LaneCopy& copy : copies) {
    all.push_back({{"lane", name(copy.lane)},
                   {"name", copy.name},
                   {"begin_ms", copy.begin},
                   {"end_ms", copy.end},
                   {"bytes", copy.bytes}});
    if (copy.lane == TraceLane::exchange) all.back()["exposed_ms"] = copy.exposed;
  }
  return all;
}

json lane_totals_json(const std::vector<LaneTotal>& totals) {
  json all = json::array();
  for (const LaneTotal& total : totals) {
    all.push_back({{"lane", name(total.lane)},
                   {"copies", total.copies},
                   {"bytes", total.bytes},
                   {"busy_ms", total.busy}});
    if (total.lane == TraceLane::exchange) all.back()["exposed_ms"] = total.exposed;
  }
  return all;
}

json layers(const std::vector<LayerGroup>& groups) {
  json all = json::array();
  for (const LayerGroup& group : groups) {
    all.push_back({{"ranges", group.layers}, {"treatment", group.treatment}});
  }
  return all;
}

json attention_choice(const AttentionChoice& choice) {
  return {{"method", name(choice.method)}, {"why", choice.why()}};
}

// Null on a cpu, which has only one method.
json attention(const TrainingConfig& config, const Machine& machine) {
  const auto* architecture = std::get_if<CudaArchitecture>(&machine.architecture);
  if (!architecture) return {};
  const auto [forward, backward, parts, without_cudnn] = attention_methods(config, *architecture);
  return {{"forward", attention_choice(forward)},
          {"backward", attention_choice(backward)},
          {"backward_parts", parts},
          {"backward_without_cudnn", without_cudnn}};
}

size_t state_on_device(const PlannedRun& run) {
  const Plan& plan = run.plans.step;
  const bool is_there = plan.optimizer_state == OptimizerState::device;
  return is_there ? run.foretold.memory.at_peak_by[Purpose::optimizer] : plan.state_bytes_on_device;
}

// Null if it was not chosen.
json split_json(const std::optional<SplitChoice>& choice) {
  if (!choice) return {};
  json all = json::array();
  for (const StepSplit& s : choice->all) {
    all.push_back({{"batch", s.batch},
                   {"accumulate", s.accumulate},
                   {"fits", s.fits},
                   {"searched", s.is_searched},
                   {"step_ms", s.fits ? json(milliseconds(s.seconds)) : json()}});
  }
  return all;
}

// The numbers that a point of a frontier has, too.
json numbers(const PlannedSteps& run) {
  const bool bound = has_bound(run);
  return {{"budget_bytes", has_limit(run) ? json(run.limit) : json()},
          {"foretold_peak_bytes", run.foretold.memory.peak},
          {"foretold_step_ms", milliseconds(run.foretold.seconds)},
          {"lower_bound_ms", bound ? json(milliseconds(run.search->lower_bound)) : json()},
          {"gap", bound ? json(gap(run)) : json()},
          {"loss_chunk", run.chunks.loss_rows},
          {"region_chunks", region_chunks(run.plans.step)}};
}

json searched(const std::optional<SearchResult>& search) {
  const auto if_any = [&](auto value) { return search ? json(value(*search)) : json(); };
  return {{"keep_all_peak_bytes", if_any([](const SearchResult& s) { return s.keep_all_peak; })},
          {"keep_all_step_ms",
           if_any([](const SearchResult& s) { return milliseconds(s.keep_all_seconds); })},
          {"plan_ms", if_any([](const SearchResult& s) { return milliseconds(s.plan_seconds); })},
          {"rehearsals", if_any([](const SearchResult& s) { return s.rehearsals; })}};
}

const char* what_limits(const PlannedRun& run) {
  return run.has_budget ? "set" : run.search && has_limit(run) ? "free memory" : "none";
}

json described(const PlannedRun& run, const Machine& machine, const std::string& model) {
  const TrainingConfig& config = run.config;
  return {{"model", model},
          {"batch", config.batch},
          {"seq", config.seq},
          {"accumulate", config.accumulate},
          {"dtype", name(config.dtype)},
          {"parameters", config.model.parameter_count()},
          {"machine", machine.name},
          {"splits", split_json(run.split)},
          {"budget_is", what_limits(run)}};
}

// The part of the run with the peak; `of_step` is the peak of the step.
const char* part_with_peak(const PlannedRun& run, const Machine& machine, size_t of_step) {
  const size_t peak = run.foretold.memory.peak;
  if (of_step >= peak) return "step";
  const MemoryStats evaluation =
      rehearse_others(run.config, run.plans.step, machine, SampleLength{});
  return evaluation.peak >= peak ? "evaluation" : "sample";
}

// What a rehearsal of the step shows.
json shown(const PlannedRun& run, const Machine& machine, const std::string& model,
           const Frontier& frontier) {
  TrainingConfig config = run.config;
  const int64_t ranks = config.replicas();
  config.accumulate = std::min(config.accumulate, distinct_micro_batches * ranks);
  const RehearsedStep step =
      rehearse_step(describe_step(config), run.plans, machine, {.allocations = true});
  NamedNodes nodes;
  PlanGrid grid;
  std::vector<LayerGroup> groups;
  read_program(config, [&](const Program& program) {
    nodes = named_nodes(program);
    grid = plan_grid(program, nodes, run.plans.step);
    groups = explain(program, run.plans.step);
  });
  const StepMemory memory = step_memory(step, nodes);
  const char* const part = part_with_peak(run, machine, step.report.memory.peak);
  const CopyLanes lanes = copy_lanes(step, nodes);
  json of_memory = memory_json(memory, step_phases(step, nodes.loss));
  of_memory.update({{"micro_batches_shown", config.accumulate / ranks},
                    {"step_peak_bytes", step.report.memory.peak},
                    {"holes_bytes", step.report.memory.peak - memory.total[memory.peak]}});
  return {{"peak_is_in", part},
          {"layers", layers(groups)},
          {"memory", std::move(of_memory)},
          {"homes", homes_report(run, machine, step)},
          {"grid", grid_json(grid)},
          {"lanes", lanes_json(lanes.copies)},
          {"lane_totals", lane_totals_json(lanes.totals)},
          {"explanation", plan_in_words({.run = run,
                                         .machine = machine,
                                         .model = model,
                                         .layers = groups,
                                         .step = step,
                                         .memory = memory,
                                         .peak_is_in = part,
                                         .frontier = frontier})}};
}

json frontier_report(const std::vector<PlannedSteps>& frontier) {
  json points = json::array();
  for (const PlannedSteps& run : frontier) points.push_back(numbers(run));
  return points;
}

json policies_report(const std::vector<PolicyPoint>& policies) {
  json points = json::array();
  for (const PolicyPoint& p : policies) {
    points.push_back(
        {{"name", p.name}, {"peak_bytes", p.peak}, {"step_ms", milliseconds(p.seconds)}});
  }
  return points;
}

json refusal(const PlannedRun& run, const Machine& machine, const std::string& model) {
  json report = head();
  report.update(described(run, machine, model));
  report.update({{"error", run.refusal->what()},
                 {"budget_bytes", run.limit},
                 {"minimum_budget_bytes", run.foretold.memory.peak},
                 {"binding_op", place_of_peak(run, describe_step(run.config), machine)}});
  return report;
}

bool is_report(const std::filesystem::path& path) {
  std::ifstream in(path);
  const json found = json::parse(in, nullptr, /*allow_exceptions=*/false);
  return found.is_object() && found.contains("format") && found["format"] == format;
}

}  // namespace

double gap(const PlannedSteps& run) { return run.foretold.seconds / run.search->lower_bound - 1; }

json plan_report(const PlannedRun& run, const Machine& machine, const std::string& model,
                 const Frontier& frontier) {
  if (run.refusal) return refusal(run, machine, model);
  json report = head();
  report.update(described(run, machine, model));
  report.update(numbers(run));
  report.update(searched(run.search));
  report.update(
      {{"fingerprint", fmt::format("{:016x}", step_fingerprints(describe_step(run.config)).back())},
       {"chunks_hold_for_threads", run.chunks_hold_for_threads},
       {"slowed_by_chunks", run.slowed_by_chunks},
       {"attention", attention(run.config, machine)},
       {"state_bytes_on_device", state_on_device(run)},
       {"host_bytes", run.foretold.host.peak},
       {"host_bytes_by_purpose", host_by_purpose(run.foretold.host)},
       {"disk_bytes", run.foretold.disk.peak},
       {"peak_bytes_by_purpose", by_purpose(run.foretold, run.exchange.has_value())}});
  if (run.exchange) report.update(to_json(*run.exchange));
  if (json cuts = cuts_report(run.config, machine); !cuts.is_null())
    report["cuts"] = std::move(cuts);
  if (run.sharding) report["sharding"] = to_json(*run.sharding);
  report.update(shown(run, machine, model, frontier));
  if (!frontier.points.empty()) {
    report["frontier"] = frontier_report(frontier.points);
    report["policies"] = policies_report(frontier.policies);
  }
  return report;
}

void check_report_file(const std::filesystem::path& path) {
  check_writable(path, {"json"});
  check_file_setting(!path_exists(path) || is_report(path), path, {"json"},
                     "exists already and is not a report of a plan; choose another name");
}

void write_report(const std::filesystem::path& path, const json& report) {
  check_report_file(path);
  write_text_file_atomically(path, report_text(report));
}

std::string report_text(const json& report) {
  std::string text;
  for (const auto& [key, value] : report.items()) {
    text += fmt::format("{}{}: {}", text.empty() ? "{\n  " : ",\n  ", json(key).dump(),
                        value.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  return text + "\n}\n";
}

}  // namespace spool
