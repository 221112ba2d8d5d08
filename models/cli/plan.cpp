// spool plan: plans a training run without its data, and without its device.  Its report is JSON,
// or a page that draws it.

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "spool/models/cli/long_work.h"
#include "spool/models/cli/plan_table.h"
#include "spool/models/cli/terminal_width.h"
#include "spool/models/cli/training_flags.h"
#include "spool/models/report/report_page.h"
#include "spool/models/training/budget.h"
#include "spool/models/training/plan_report.h"
#include "spool/models/training/run_calibration.h"
#include "spool/models/training/run_search.h"
#include "spool/models/training/run_tokenizer.h"
#include "spool/planner/machine.h"
#include "spool/runtime/log.h"

namespace spool {
namespace {

constexpr const char* here = "this";

struct PlanFlags {
  TrainingFlags training;
  std::string machine = here, json;
  bool frontier = false;
};

// Where a run is planned for, and what it has to fit into there.
struct Place {
  Machine machine;
  MemoryLimit limit;
};

Place place_of(const PlanFlags& flags, const RunOptions& o, const std::optional<Plan>& given) {
  if (flags.machine != here) {
    check(!o.given.contains("device"), "--device and --machine ", flags.machine,
          " both say where the run is planned for; give one of them");
    const size_t memory = *memory_of_named_machine(flags.machine);
    return {*named_machine(flags.machine),
            {.budget = std::min(o.memory, memory), .free = memory, .most = memory}};
  }
  const CommandWork work("measuring kernels");
  const Machine machine = calibrate(calibration_of(o, given)).machine;
  return {machine, memory_limit(o.device, o.memory, machine)};
}

// Before planning, which may take long.
void check_outputs(const PlanFlags& flags, const RunOptions& o) {
  const std::string json = flags.json == "-" ? "" : flags.json;
  check_names_differ(o, {{"json", json}});
  if (!json.empty()) check_report_file(json);
  if (!o.report.empty()) check_report_page_file(o.report);
  if (!o.save_plan.empty()) check_plan_file(o.save_plan);
}

void write_reports(const PlanFlags& flags, const RunOptions& o, const nlohmann::json& report) {
  if (!o.report.empty()) write_report_page(o.report, report);
  if (flags.json == "-") {
    fmt::print("{}", report_text(report));
  } else if (!flags.json.empty()) {
    write_report(flags.json, report);
  }
}

void say_where_files_are(const RunOptions& o) {
  if (!o.save_plan.empty()) fmt::print("the plan is in {}\n", o.save_plan);
  if (!o.report.empty()) fmt::print("the report is in {}\n", o.report);
}

int plan(const PlanFlags& flags, const CLI::App& command) {
  RunOptions o = resolve_training(flags.training, command);
  if (!flags.json.empty() || !o.report.empty()) check_can_be_stored(o);
  check_outputs(flags, o);
  const std::optional<Plan> given_plan = read_given_plan(o);
  const auto tokenizer = open_run_tokenizer(o);
  o.training.validate();
  if (flags.machine == here) o.device = device_of(flags.training.device);
  const auto [machine, limit] = place_of(flags, o, given_plan);
  if (flags.machine != here && !o.host_memory) o.host_memory = 2 * limit.most;
  RunRequest request = request_of(o, machine, given_plan);
  request.sample = sample_length(*tokenizer, o.training.model.shape().vocabulary);
  request.limit = limit;
  auto planning = std::make_optional<CommandWork>("planning");
  RunSearch search(o.training, request, machine);
  PlannedRun run = o.memory ? search.plan(limit.budget) : search.keep_all_or_plan(limit.free);
  if (o.memory) run.budget = limit.budget;
  run.besides = limit.besides;
  run.refusal = refuse(run, request, machine);
  if (run.refusal) {
    planning.reset();
    write_reports(flags, o, plan_report(run, machine, o.model));
    throw Error(*run.refusal);
  }
  const bool reports = !flags.json.empty() || !o.report.empty();
  Frontier frontier;
  if (flags.frontier || !o.report.empty()) {
    frontier = find_frontier(search);
    if (reports) frontier.policies = search.policies();
  }
  nlohmann::json report;
  if (reports) report = plan_report(run, machine, o.model, frontier);
  if (!o.save_plan.empty()) save_step_plan(o.save_plan, run, machine);
  planning.reset();
  if (reports) write_reports(flags, o, report);
  for (const std::string& words : {lowered_budget(o.memory, limit), warn_of_memory(run, limit)}) {
    if (!words.empty()) logger().warn("{}", words);
  }
  if (flags.json == "-") return 0;
  o.training = run.config;
  print_lines(emphasised(plan_table(o, machine, run), STDOUT_FILENO));
  if (flags.frontier) print_lines(frontier_table(frontier.points));
  say_where_files_are(o);
  return 0;
}

}  // namespace

std::function<int()> add_plan(CLI::App& app) {
  const auto flags = std::make_shared<PlanFlags>();
  add_shape_flags(app, flags->training);
  add_tokenizer_flags(app, flags->training.options.tokenizer);
  add_step_flags(app, flags->training);
  add_policy_flags(app, flags->training);
  add_machine_flags(
      app, flags->training,
      "Memory budget of the device, such as 2GiB; by default everything is kept, or as much as "
      "fits into what the machine has, or has free if it is this one");
  std::vector<std::string> machines = machine_names();
  const std::string gpus = CLI::detail::join(machines, ", ");
  machines.emplace_back(here);
  app.add_option("--machine", flags->machine,
                 sentence("Machine to plan for: a GPU by its data sheet (", gpus, "), or ", here,
                          " one, which is measured"))
      ->check(CLI::IsMember(machines).description(""))
      ->capture_default_str();
  app.add_flag("--frontier", flags->frontier,
               "Also plan for budgets from the smallest that can be met to that of keeping all");
  app.add_option("--report", flags->training.options.report,
                 "File to write a page to that draws the plan, with --frontier: HTML that needs no "
                 "network");
  app.add_option("--json", flags->json,
                 "File to write a report to, as JSON; -: standard output, and nothing else there");
  app.footer(preset_table());
  return [flags, &app] { return plan(*flags, app); };
}

}  // namespace spool
