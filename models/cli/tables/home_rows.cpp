#include "spool/models/cli/tables/home_rows.h"

#include "spool/models/training/home_report.h"
#include "spool/planner/report/home_words.h"
#include "spool/runtime/units.h"

namespace spool {

std::vector<std::string> home_lines(const PlannedRun& run, const Machine& machine) {
  std::vector<std::string> lines;
  const Plan& plan = run.plans.step;
  if (std::string words = homes_in_words(plan); !words.empty()) lines.push_back(std::move(words));
  if (has_homes(plan) && std::holds_alternative<CpuArchitecture>(machine.architecture)) {
    lines.emplace_back("a cpu's own processors copy them, within the same memory");
  }
  if (std::string words = link_in_words(run, machine); !words.empty()) {
    lines.push_back(std::move(words));
  }
  return lines;
}

std::string host_note(const PlannedRun& run, Purpose purpose) {
  const size_t bytes = run.foretold.host.at_peak_by[purpose];
  return bytes ? format_bytes(bytes) + " on the host" : "";
}

}  // namespace spool
