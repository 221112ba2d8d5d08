#include "spool/models/cli/shard_model.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/cli/tables/plan_table.h"
#include "spool/models/cli/terminal/long_work.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/models/report/report_page.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/training/exchange_foretold.h"
#include "spool/models/training/plan_report.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/models/training/sharding_choice.h"
#include "spool/planner/machines/machine_text.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

using nlohmann::json;

// An arrangement of ranks on which the model cannot be cut.
struct RefusedMesh {
  std::string mesh;
  Error why;
};

// A mesh, with the run that was planned on it.
struct PlannedMesh {
  RunOptions options;
  Machine machine;
  PlannedRun run;
};

PlannedMesh planned_on(const std::string& mesh, const CLI::App& command,
                       const ShardModelFlags& flags) {
  GivenTexts texts = given_texts(command);
  texts["mesh"] = {mesh};
  const auto [ranks, shared_axes] = rank_mesh(mesh);
  const int sharing = shared_axes.empty() ? 1 : parse_mesh(shared_axes).ranks();
  texts.try_emplace("accumulate", std::vector{std::to_string(ranks / sharing)});
  RunOptions o = run_options(texts, flag_of);
  o.training.validate();
  check_names_differ(o, {{"json", flags.json == "-" ? "" : flags.json}});
  check_setting(!o.shard_axes.empty(), {"mesh"}, "mesh '", mesh,
                "' has no axis but data, along which nothing is cut; give another, such as "
                "tensor=2");
  AbsentMachine absent = machine_from_text(flags.machine);
  give_ranks(absent, o.training.ranks);
  Machine& machine = absent.machine;
  if (!flags.link.empty()) {
    machine.mesh.link = machine.mesh.between_machines = parse_link(flags.link);
  }
  if (!o.host_memory) o.host_memory = host_bytes_of(absent);
  RunRequest request = request_of(o, machine, {});
  limit_memory(request, absent.memory, o.memory, machine);
  const SampleLength none;
  PlannedRun run = plan_and_choose(o, request, none, machine).run;
  o.training = run.config;
  return {std::move(o), machine, std::move(run)};
}

// All ways to arrange so many ranks along at most three axes, each of several ranks: 8, 2x4, 4x2
// and 2x2x2.
void add_arrangements(std::vector<std::string>& to, const std::string& outer, int ranks, int axes) {
  to.push_back(outer + std::to_string(ranks));
  for (int of_axis = 2; axes > 1 && of_axis < ranks; ++of_axis) {
    if (ranks % of_axis != 0) continue;
    add_arrangements(to, outer + std::to_string(of_axis) + "x", ranks / of_axis, axes - 1);
  }
}

std::vector<std::string> meshes_of(const std::string& text) {
  const bool is_number =
      !text.empty() && std::ranges::all_of(text, [](char c) { return '0' <= c && c <= '9'; });
  const MeshAxes mesh = parse_mesh(text);
  if (!is_number || mesh.ranks() < 2) return {text};
  constexpr int max_axes = 3;
  std::vector<std::string> all;
  add_arrangements(all, "", mesh.ranks(), max_axes);
  return all;
}

bool is_better(const PlannedMesh& a, const PlannedMesh& b) {
  const bool fits_a = !a.run.refusal, fits_b = !b.run.refusal;
  if (fits_a != fits_b) return fits_a;
  if (!fits_a) return a.run.foretold.memory.peak < b.run.foretold.memory.peak;
  return a.run.foretold.seconds < b.run.foretold.seconds;
}

json parameters_of(const PlannedMesh& best) {
  json parameters = json::array();
  const json shards = json::parse(shards_text(describe_step(best.run.config)));
  for (const auto& [name, stored] : shards.at("parameters").items()) {
    parameters.push_back({{"name", name}, {"stored", stored}});
  }
  return parameters;
}

// All arrangements that were tried, if there were several; else null.
json meshes_json(const std::vector<PlannedMesh>& all, const std::vector<RefusedMesh>& refused,
                 const PlannedMesh& best) {
  if (all.size() + refused.size() < 2) return {};
  json meshes = json::array();
  for (const PlannedMesh& tried : all) {
    meshes.push_back({{"mesh", tried.options.mesh},
                      {"foretold_step_ms", 1e3 * tried.run.foretold.seconds},
                      {"foretold_peak_bytes", tried.run.foretold.memory.peak},
                      {"feasible", !tried.run.refusal},
                      {"chosen", &tried == &best}});
  }
  for (const RefusedMesh& one : refused) {
    meshes.push_back(
        {{"mesh", one.mesh}, {"feasible", false}, {"chosen", false}, {"why", one.why.what()}});
  }
  return meshes;
}

json report_of(const PlannedMesh& best, const ShardModelFlags& flags) {
  json report = to_json(*best.run.sharding);
  report["mesh"] = best.options.mesh;
  report["machine"] = flags.machine;
  report["budget_bytes"] = best.options.memory ? json(best.options.memory) : json(nullptr);
  report["foretold_step_ms"] = 1e3 * best.run.foretold.seconds;
  report["foretold_peak_bytes"] = best.run.foretold.memory.peak;
  report["parameters"] = parameters_of(best);
  if (best.run.exchange)
    report["exchanges"] = to_json(*best.run.exchange).at("exchange").at("list");
  return report;
}

std::string other_meshes(const std::vector<PlannedMesh>& all,
                         const std::vector<RefusedMesh>& refused, const PlannedMesh& best) {
  std::string lines;
  for (const PlannedMesh& other : all) {
    if (&other == &best) continue;
    const Report& foretold = other.run.foretold;
    lines += fmt::format(
        "  {:<20} {:>12}   {}{}\n", "on " + other.options.mesh, format_seconds(foretold.seconds),
        other.run.refusal ? "does not fit: needs " : "", format_bytes(foretold.memory.peak));
  }
  for (const RefusedMesh& one : refused) {
    lines += fmt::format("  {:<20} cannot be: {}\n", "on " + one.mesh, one.why.what());
  }
  return lines;
}

struct TriedMeshes {
  std::vector<PlannedMesh> all = {};
  std::vector<RefusedMesh> refused = {};
};

TriedMeshes try_meshes(const CLI::App& command, const ShardModelFlags& flags) {
  TriedMeshes tried;
  const CommandWork choosing("choosing how ops are cut");
  for (const std::string& mesh : meshes_of(flags.mesh)) {
    try {
      tried.all.push_back(planned_on(mesh, command, flags));
    } catch (const Error& e) {  // another arrangement may divide what this one does not
      if (e.kind() != ErrorKind::invalid) throw;
      tried.refused.push_back({mesh, e});
    }
  }
  if (tried.all.empty()) throw Error(tried.refused.front().why);
  return tried;
}

// Before there is work that would be lost.
void check_outputs(const CLI::App& command, const ShardModelFlags& flags) {
  if (!flags.json.empty() && flags.json != "-") check_writable(flags.json, {"json"});
  const GivenTexts given = given_texts(command);
  const auto check_given = [&](const char* key, const auto& check_file) {
    if (const auto at = given.find(key); at != given.end()) check_file(at->second.front());
  };
  check_given("save-shard", [](const std::string& file) { check_writable(file, {"save-shard"}); });
  check_given("report", [](const std::string& file) { check_report_page_file(file); });
}

}  // namespace

void add_shard_model_flags(CLI::App& app) {
  for (const char* key : {"model", "layers", "batch", "seq", "accumulate", "dtype", "zero",
                          "memory", "host-memory", "save-shard", "report"}) {
    if (!app.get_option_no_throw("--" + std::string(key))) add_setting(app, run_setting(key));
  }
}

int shard_model(const CLI::App& command, const ShardModelFlags& flags) {
  check_setting(!flags.machine.empty(), {"machine"},
                "how a model is cut is chosen by a machine's clock; name one, such as 8xh200");
  check_outputs(command, flags);
  const auto [all, refused] = try_meshes(command, flags);
  const PlannedMesh& best = *std::ranges::min_element(all, is_better);
  const RunOptions& o = best.options;
  if (flags.json != "-") {
    const std::string lines =
        plan_table(o, best.machine, best.run) + "\n" + other_meshes(all, refused, best);
    print_lines(wrapped(lines, terminal_width(STDOUT_FILENO)));
  }
  if (best.run.refusal) throw Error(*best.run.refusal);
  if (!o.save_shard.empty()) save_shards(o.save_shard, describe_step(best.run.config));
  const json meshes = meshes_json(all, refused, best);
  if (!o.report.empty()) {
    json page = plan_report(best.run, best.machine, o.model);
    if (!meshes.is_null()) page["meshes"] = meshes;
    write_report_page(o.report, page);
    if (flags.json != "-") fmt::print("the report is in {}\n", o.report);
  }
  json report = report_of(best, flags);
  if (!meshes.is_null()) report["meshes"] = meshes;
  if (flags.json == "-") {
    fmt::print("{}", report_text(report));
  } else if (!flags.json.empty()) {
    write_text_file_atomically(flags.json, report_text(report));
  }
  return 0;
}

}  // namespace spool
