// spool plan: plans a training run without its data, and without its device.  Its report is JSON,
// or a page that draws it.

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/commands.h"
#include "spool/models/cli/ranks/launched_command.h"
#include "spool/models/cli/ranks/processes.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/cli/tables/plan_table.h"
#include "spool/models/cli/terminal/long_work.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/models/data/find_files.h"
#include "spool/models/report/report_page.h"
#include "spool/models/training/plan_report.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run/ranks.h"
#include "spool/models/training/run/tokenizer.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/models/training/sharding_choice.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/machines/machine_text.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/log.h"
#include "spool/runtime/ranks/launcher.h"

namespace spool {
namespace {

constexpr const char* here = "this";

struct PlanFlags {
  std::string machine = here, json;
  bool frontier = false, kernels = false;
};

// Where a run is planned for, and how it executes there.
struct Place {
  Machine machine;
  RunRequest request;
  std::optional<SplitChoice> split;
  std::string link;  // what exchanges by the link of the ranks, if that was measured
};

// A machine that is not here.
Place place_elsewhere(const PlanFlags& flags, RunOptions& o, const std::optional<Plan>& given,
                      const SampleLength& sample) {
  check(!o.given.contains("device"), "--device and --machine ", flags.machine,
        " both say where the run is planned for; give one of them");
  AbsentMachine absent = machine_from_text(flags.machine);
  const std::string link =
      give_ranks(absent, o.training.ranks, o.ranks_as == "processes" ? "sockets" : "threads");
  Machine& machine = absent.machine;
  if (const auto* cpu = std::get_if<CpuArchitecture>(&machine.architecture)) {
    check(o.threads == 0 || o.threads == cpu->threads, "--machine ", flags.machine, " has ",
          cpu->threads, " threads, and --threads says ", o.threads, "; leave --threads out");
  }
  if (!o.spill_directory.empty()) {
    const std::string disk = std::filesystem::absolute(o.spill_directory).lexically_normal();
    if (absent.disks.contains(disk)) machine.disk_bytes_per_second = absent.disks[disk];
  }
  if (!o.host_memory) o.host_memory = host_bytes_of(absent);
  const size_t memory = absent.memory.value_or(MetaStream::unlimited);
  std::optional<SplitChoice> split = choose_split(o, machine, memory, sample);
  RunRequest request = request_of(o, machine, given);
  limit_memory(request, absent.memory, o.memory, machine);
  const bool is_cpu = std::holds_alternative<CpuArchitecture>(machine.architecture);
  if (is_cpu && machine.mesh.ranks > 1) request.ranks = static_cast<size_t>(machine.mesh.ranks);
  return {machine, request, std::move(split), link};
}

// `own`: this process is one of the ranks that measure; on the others than the first the request is
// of no plan.
Place this_place(RunOptions& o, const std::optional<Plan>& given, const SampleLength& sample,
                 const std::shared_ptr<Communicator>& own) {
  const bool leads = !own || own->rank() == 0;
  std::shared_ptr<Communicator> ranks = own;
  o.device = device_of(o);
  give_part_of_machine(o, ranks);
  std::optional<SplitChoice> split;
  if (leads) {
    const CommandWork choosing("choosing micro-batches");
    split = choose_split(o, sample);
  }
  if (ranks) share_split(o.training, *ranks);
  CalibrationRequest calibration = calibration_of(o, given);
  calibration.own_rank = ranks;
  std::optional<CommandWork> work;
  if (leads) work.emplace("measuring kernels");
  const Calibration found = calibrate(calibration);
  find_least_memory(o, ranks.get());
  return {found.machine, request_of(o, found.machine, given), std::move(split), found.link};
}

// Also chooses the micro-batches, if that is asked for.
Place place_of(const PlanFlags& flags, RunOptions& o, const std::optional<Plan>& given,
               const SampleLength& sample, const std::shared_ptr<Communicator>& own) {
  return flags.machine == here ? this_place(o, given, sample, own)
                               : place_elsewhere(flags, o, given, sample);
}

// Those of a machine that is named, which need no flag of their own; 0 if it has none.
int ranks_of_machine(const PlanFlags& flags) {
  return flags.machine == here ? 0 : machine_from_text(flags.machine).machine.mesh.ranks;
}

// What is wrong with the text of a machine; a file is read later.
std::string fault_of_machine(const std::string& text) {
  if (text == here || is_machine_file(text)) return {};
  try {
    machine_from_text(text);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

// The samples of the run.  The folder of a model may have its config.json alone: then they begin
// with one token.
SampleLength foretold_sample(RunOptions& o) {
  const bool is_asked = !o.tokenizer.name.empty() || !o.tokenizer.merges.empty();
  try {
    return sample_of(o, *open_run_tokenizer(o)).length;
  } catch (const Error& e) {
    if (is_asked || !has_weights(o.model) || e.kind() != ErrorKind::file) throw;
    return sample_of(o, *make_byte_tokenizer()).length;
  }
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

void print_plan(const RunOptions& o, const Machine& machine, const PlannedRun& run) {
  const std::string lines = wrapped(plan_table(o, machine, run), terminal_width(STDOUT_FILENO));
  fmt::print("{}\n", emphasised(lines, STDOUT_FILENO));
  std::fflush(stdout);  // before what refuses the run
}

void warn(const std::string& words) {
  if (!words.empty()) logger().warn("{}", words);
}

// `own`: the rank that this process is, of several that measure; the first of them plans.
int plan(PlanFlags flags, RunOptions o, const std::shared_ptr<Communicator>& own = nullptr) {
  const bool measures_only = own && own->rank() > 0;
  if (measures_only) flags.json = o.report = o.save_plan = "";
  const bool reports = !flags.json.empty() || !o.report.empty();
  if (reports) check_can_be_stored(o);
  check_outputs(flags, o);
  const bool has_examples = are_examples(find_files(o.data), o.data_format);
  check_settings_of_examples(o, has_examples);
  o.training.packed = has_examples && o.pack;
  const std::optional<Plan> given_plan = read_given_plan(o);
  const SampleLength sample = foretold_sample(o);
  o.training.validate();
  const auto [machine, request, split, link] = place_of(flags, o, given_plan, sample, own);
  if (measures_only) return 0;
  auto planning = std::make_optional<CommandWork>("planning");
  auto [planner, run] = plan_and_choose(o, request, sample, machine);
  run.split = split;
  tell_rounding(run, o);
  if (run.exchange) run.exchange->measured_link = link;
  o.training = run.config;
  Frontier frontier;
  if ((flags.frontier || !o.report.empty()) && !run.refusal) {
    frontier = planner->steps().frontier();
    if (reports) frontier.policies = planner->steps().policies();
  }
  nlohmann::json report;
  if (reports) report = plan_report(run, machine, o.model, frontier);
  if (!o.save_plan.empty() && !run.refusal) save_step_plan(o.save_plan, run, machine);
  planning.reset();
  if (reports) write_reports(flags, o, report);
  if (flags.json != "-") print_plan(o, machine, run);
  if (run.refusal) throw Error(*run.refusal);
  warn(lowered_budget(o.memory, request));
  warn(warn_of_memory(run, request));
  if (flags.json == "-") return 0;
  if (flags.kernels) print_lines(kernel_times_table(o.training, run.plans, machine));
  if (flags.frontier) print_lines(frontier_table(frontier.points));
  say_where_files_are(o);
  return 0;
}

std::string left_of_plan() { return "nothing was planned; start it again"; }

// Ranks that are processes measure as such, so the program starts them.
int plan_as_told(const PlanFlags& flags, const CLI::App& command) {
  const bool is_started = own_environment(rank_variables::rank) != nullptr;
  if (const auto launched = is_started ? rank_of_launcher() : std::nullopt) {
    return run_launched(*launched, /*meet=*/"", [&] {
      return RankWork{.run = [&flags, o = options_of(command, launched->size)](
                                 const auto& own) { return plan(flags, o, own); },
                      .is_left = left_of_plan};
    });
  }
  RunOptions o = options_of(command, ranks_of_machine(flags));
  const bool has_ranks_here = flags.machine == here && o.training.ranks > 0;
  if (has_ranks_here) o.device = device_of(o);
  const bool starts_ranks = has_ranks_here && starts_processes(o);
  return starts_ranks ? run_as_processes(o.training.ranks, left_of_plan) : plan(flags, o);
}

}  // namespace

std::function<int()> add_plan(CLI::App& app) {
  const auto flags = std::make_shared<PlanFlags>();
  using namespace settings;
  add_settings(app, {&model_table, &tokenizer_table, &step_table, &policy_table, &machine_table,
                     &rank_table, &sample_table});
  add_setting(app, run_setting("data"))
      ->description(
          "Files that the run will read: whether they are examples, whose rows are packed, is all "
          "that counts");
  add_setting(app, run_setting("pack"));
  app.get_option("--memory")
      ->description(
          "Memory budget of the device, such as 2GiB; by default everything is kept, or as much as "
          "fits into what the machine has, or has free if it is this one");
  const std::string gpus = CLI::detail::join(machine_names(), ", ");
  app.add_option(
         "--machine", flags->machine,
         sentence(
             "Machine to plan for: ", here, " one, which is measured; a GPU by its ",
             "data sheet (", gpus, "), also with other memory (rtx4090,400GiB) or ",
             "another link to its host (h100,link=6GB/s), or a rank on each of several "
             "(8xh200, or 2x8xh200 on two machines), also with another link between those of a "
             "machine (8xh200,ranks=450GB/s); a cpu by its threads, instruction "
             "set (avx2, avx512, avx512bf16 or amx), clock and bandwidth of memory, as ",
             "cpu:16,avx2,3.5GHz,80GB/s after which its memory (64GiB) and one-port may stand;",
             " or a file that spool calibrate --save wrote on another machine"))
      ->check(validator({.fault = fault_of_machine}))
      ->capture_default_str();
  app.add_flag("--frontier", flags->frontier,
               "Also plan for budgets from the smallest that can be met to that of keeping all");
  app.add_flag("--kernels", flags->kernels,
               "Also print the foretold time of a step's kernels, by name");
  add_setting(app, run_setting("report"))
      ->description(
          "File to write a page to that draws the plan, with --frontier: HTML that needs no "
          "network");
  app.add_option("--json", flags->json,
                 "File to write a report to, as JSON; -: standard output, and nothing else there")
      ->transform(validator(standard_output_as("-")));
  return [flags, &app] { return plan_as_told(*flags, app); };
}

}  // namespace spool
