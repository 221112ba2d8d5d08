// spool plot: draws the losses and the speed of runs, whose logs are lines of JSON.

#include <spdlog/fmt/fmt.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/commands.h"
#include "spool/models/report/report_page.h"
#include "spool/models/report/run_logs.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/log.h"

namespace spool {
namespace {

struct PlotFlags {
  std::vector<std::string> runs;
  std::string out;
};

void check_runs(const PlotFlags& flags) {
  const std::vector<std::string>& runs = flags.runs;
  check(runs.size() <= max_plotted_runs, runs.size(), " runs are too many for a page; give ",
        max_plotted_runs, " at most");
  std::set<std::filesystem::path> known;
  for (const std::string& run : runs) {
    check(known.insert(std::filesystem::absolute(run).lexically_normal()).second, run,
          " is given twice; give each run once");
    std::error_code none;
    check_file_setting(!std::filesystem::equivalent(run, flags.out, none), flags.out, {"out"},
                       "is one of the runs that are drawn, and would be lost; choose another name");
  }
}

int plot(const PlotFlags& flags) {
  check_runs(flags);
  check_report_page_file(flags.out, {"out"});
  const size_t max = plotted_steps(flags.runs.size());
  std::vector<LoggedRun> runs;
  for (const std::string& run : flags.runs) {
    runs.push_back(read_run_log(run, max));
    if (!runs.back().broken_off.empty()) logger().warn("{}", runs.back().broken_off);
  }
  const std::vector<std::filesystem::path> paths(flags.runs.begin(), flags.runs.end());
  write_report_page(flags.out, plot_report(short_names(paths), runs), {"out"});
  fmt::print("the page is in {}\n", flags.out);
  return 0;
}

}  // namespace

std::function<int()> add_plot(CLI::App& app) {
  const auto flags = std::make_shared<PlotFlags>();
  app.add_option("RUN", flags->runs,
                 "Logs of runs, as `spool train --log` writes them, or pages, as --report does")
      ->required();
  app.add_option("--out", flags->out,
                 "File to write the page to, which draws losses and speed: HTML that needs no "
                 "network")
      ->required()
      ->check(validator(file_of("a page")));
  return [flags] { return plot(*flags); };
}

}  // namespace spool
