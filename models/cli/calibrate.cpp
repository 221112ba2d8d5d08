#include <spdlog/fmt/fmt.h>

#include <memory>
#include <optional>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/commands.h"
#include "spool/models/cli/ranks/launched_command.h"
#include "spool/models/cli/ranks/processes.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/cli/terminal/long_work.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run/ranks.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/ranks/launcher.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

std::string kernel_row(const KernelTime& k) {
  const Cost& cost = k.cost;
  return fmt::format("  {:<20} {:<5} {:>9.4g} {:>9.4g} {:>10.4f} {:>10.1f} {:>9.1f}\n", k.name,
                     name(cost.dtype), cost.flops, cost.bytes, 1e3 * k.seconds,
                     cost.flops / k.seconds / 1e9, cost.bytes / k.seconds / 1e9);
}

std::string kernel_table(const Calibration& found) {
  std::string table = fmt::format("  {:<20} {:<5} {:>9} {:>9} {:>10} {:>10} {:>9}\n", "kernel",
                                  "type", "flops", "bytes", "ms", "GFLOP/s", "GB/s");
  for (const KernelTime& k : found.kernels) table += kernel_row(k);
  if (!found.unmeasured.empty()) {
    table += fmt::format(
        "{} of the {} kernels of a step not measured, but foretold by the rates, scaled as {}:\n",
        found.unmeasured.size(), found.kernels.size() + found.unmeasured.size(),
        found.kernels.empty() ? "what was measured before" : "those above");
    for (const KernelTime& k : found.unmeasured) table += kernel_row(k);
  }
  table.pop_back();
  return table;
}

Calibration calibrate_with_display(CalibrationRequest request) {
  CommandWork work("measuring kernels");
  request.say = [&](const std::string& text) {
    work.hide();
    fmt::print("{}\n", text);
    work.show();
  };
  return calibrate(request);
}

struct CalibrateFlags {
  bool afresh = false;
  std::string save;
};

// Before measuring, which takes long.
void check_table_file(const std::string& file) {
  check_writable(file, {"save"});
  check_file_setting(!path_exists(file) || is_table(file), file, {"save"},
                     "exists already and is not a table of kernels; choose another name");
}

void print_calibration(const Calibration& found, const CalibrateFlags& flags) {
  const Machine& m = found.machine;
  print_lines(fmt::format(
      "{}: products {:.1f} GFLOP/s, memory {:.1f} GB/s, to the host {:.1f} GB/s, from the "
      "host {:.1f} GB/s\n{}",
      m.name, m.f32_flops / 1e9, m.bytes_per_second / 1e9, m.to_host_bytes_per_second / 1e9,
      m.from_host_bytes_per_second / 1e9, kernel_table(found)));
  if (!found.file.empty()) print_lines("the table is " + found.file.string());
  if (flags.save.empty()) return;
  save_table(flags.save, found.table);
  print_lines("the table to plan with elsewhere is " + flags.save);
}

// `own`: the rank that this process is, of several; null: it measures alone, or with ranks that are
// its threads.  The first prints what all measured.
int calibrate_and_print(RunOptions options, const CalibrateFlags& flags,
                        const std::shared_ptr<Communicator>& own = nullptr) {
  const bool leads = !own || own->rank() == 0;
  if (leads && !flags.save.empty()) check_table_file(flags.save);
  std::shared_ptr<Communicator> ranks = own;
  give_part_of_machine(options, ranks);
  CalibrationRequest request = calibration_of(options);
  request.renewal = flags.afresh ? Renewal::replace : Renewal::lower;
  request.own_rank = ranks;
  if (leads) {
    print_calibration(calibrate_with_display(std::move(request)), flags);
  } else {
    calibrate(request);
  }
  return 0;
}

std::string left_of_calibration() { return "nothing that was measured is kept; start it again"; }

int calibrate_as_told(const CLI::App& command, const CalibrateFlags& flags) {
  const std::optional<LaunchedRank> launched = rank_of_launcher();
  const auto options = [&] {
    RunOptions o = options_of(command, launched ? launched->size : 0);
    check_launch(o, launched);
    o.device = device_of(o);
    o.training.validate();
    return o;
  };
  if (launched) {
    return run_launched(*launched, command.get_option("--meet")->as<std::string>(), [&] {
      const RunOptions o = options();
      const bool has_gpus = o.device.type == DeviceType::cuda;
      return RankWork{
          .run = [&flags, o](const auto& own) { return calibrate_and_print(o, flags, own); },
          .is_left = left_of_calibration,
          .say = [has_gpus](const auto& all) { print_lines(in_words(all, has_gpus)); }};
    });
  }
  const RunOptions o = options();
  const bool starts_ranks = o.training.ranks > 0 && starts_processes(o);
  return starts_ranks ? run_as_processes(o.training.ranks, left_of_calibration)
                      : calibrate_and_print(o, flags);
}

}  // namespace

std::function<int()> add_calibrate(CLI::App& app) {
  using namespace settings;
  add_settings(app, {&model_table, &step_table, &machine_table});
  add_setting(app, run_setting("ranks"))
      ->description(
          "Number of ranks that measure at once: of each kernel the slowest counts, and the link "
          "between them is measured, too, by what they are (--ranks-as) or, under mpirun, by MPI.  "
          "By default one stream alone");
  for (const char* key : {"ranks-as", "meet"}) add_setting(app, run_setting(key));
  app.get_option("--memory")
      ->description(
          "Memory that the measured step may take, such as 2GiB; by default what it needs");
  const auto flags = std::make_shared<CalibrateFlags>();
  app.add_flag("--afresh", flags->afresh,
               "Replace what was measured before; by default it is only lowered");
  app.add_option("--save", flags->save,
                 "File to write the table to, with what the device is: spool plan --machine FILE "
                 "plans for it on other machines")
      ->transform(validator(file_of("a table")));
  return [flags, &app] { return calibrate_as_told(app, *flags); };
}

}  // namespace spool
