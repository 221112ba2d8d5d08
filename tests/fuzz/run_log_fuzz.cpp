#include <cstdlib>
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "spool/models/report/run_logs.h"

// Reads a log, or the page of a run.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    for (const size_t max : {size_t{4}, plotted_steps(max_plotted_runs), plotted_steps(1)}) {
      const LoggedRun run = read_run_log(path, max);
      if (run.steps.size() > max) std::abort();
      const nlohmann::json report = plot_report({"a"}, {run});
      if (step_entries(report["runs"][0]["log"]) != run.steps) std::abort();
    }
  });
  return 0;
}
