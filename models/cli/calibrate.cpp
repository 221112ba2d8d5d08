#include <spdlog/fmt/fmt.h>

#include <memory>

#include "spool/models/cli/terminal/long_work.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/models/cli/training_flags.h"
#include "spool/models/training/planned_run.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

struct CalibrationFlags {
  TrainingFlags training;
  bool afresh = false;
};

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
    table += "not measured, as the step does not fit into the memory; as foretold:\n";
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

int calibrate_and_print(const CalibrationFlags& flags, const CLI::App& command) {
  RunOptions options = resolve_training(flags.training, command);
  options.device = device_of(flags.training.device);
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
  return 0;
}

}  // namespace

std::function<int()> add_calibrate(CLI::App& app) {
  const auto flags = std::make_shared<CalibrationFlags>();
  add_shape_flags(app, flags->training);
  add_step_flags(app, flags->training);
  add_machine_flags(
      app, flags->training,
      "Memory that the measured step may take, such as 2GiB; by default what it needs");
  app.add_flag("--afresh", flags->afresh,
               "Replace what was measured before; by default it is only lowered");
  app.footer(preset_table());
  return [flags, &app] { return calibrate_and_print(*flags, app); };
}

}  // namespace spool
