#include <spdlog/fmt/fmt.h>

#include <memory>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/commands.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/cli/terminal/long_work.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run/ranks.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/files/file.h"
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

int calibrate_and_print(const CLI::App& command, const CalibrateFlags& flags) {
  if (!flags.save.empty()) check_table_file(flags.save);
  RunOptions options = options_of(command);
  options.device = device_of(options.device_name);
  give_part_of_machine(options);
  options.training.validate();
  CalibrationRequest request = calibration_of(options);
  request.renewal = flags.afresh ? Renewal::replace : Renewal::lower;
  const Calibration found = calibrate_with_display(request);
  const Machine& m = found.machine;
  print_lines(fmt::format(
      "{}: products {:.1f} GFLOP/s, memory {:.1f} GB/s, to the host {:.1f} GB/s, from the "
      "host {:.1f} GB/s\n{}",
      m.name, m.f32_flops / 1e9, m.bytes_per_second / 1e9, m.to_host_bytes_per_second / 1e9,
      m.from_host_bytes_per_second / 1e9, kernel_table(found)));
  if (!found.file.empty()) print_lines("the table is " + found.file.string());
  if (flags.save.empty()) return 0;
  save_table(flags.save, found.table);
  print_lines("the table to plan with elsewhere is " + flags.save);
  return 0;
}

}  // namespace

std::function<int()> add_calibrate(CLI::App& app) {
  using namespace settings;
  add_settings(app, {&model_table, &step_table, &machine_table});
  add_setting(app, run_setting("ranks"))
      ->description(
          "Number of ranks that measure at once, as threads of this program: of each kernel the "
          "slowest counts, and the link between them is measured, too.  By default one stream "
          "alone");
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
  return [flags, &app] { return calibrate_and_print(app, *flags); };
}

}  // namespace spool
