#include "shared/sweep_page.h"

#include <nlohmann/json.hpp>

#include "spool/runtime/check.h"
#include "spool/runtime/units.h"

namespace spool::benchmarks {
namespace {

using nlohmann::json;

constexpr const char* planned = "the planner's plans";

json point(std::string name, std::string group, const json& peak, const json& step, json foretold) {
  return {{"name", std::move(name)},
          {"group", std::move(group)},
          {"peak_bytes", peak},
          {"step_ms", step},
          {"foretold_peak_bytes", std::move(foretold)}};
}

json foretold_points(const json& report) {
  json points = json::array();
  for (const json& budget : report.value("budgets", json::array())) {
    const json& plan = budget["planner"];
    const auto name = format_bytes(budget["budget_bytes"].get<size_t>());
    points.push_back(point(name, planned, plan["peak_bytes"], plan["step_ms"], {}));
  }
  for (const json& policy : report.value("policies", json::array())) {
    points.push_back(
        point(policy["name"], policy["rule"], policy["peak_bytes"], policy["step_ms"], {}));
  }
  return points;
}

json measured_points(const json& runs) {
  json points = json::array();
  for (const json& run : runs) {
    const bool is_plan = run["what"].get<std::string>().starts_with("planner");
    points.push_back(point(run["what"], is_plan ? planned : "simple policies",
                           run["measured_peak_bytes"], run["measured_step_ms"], run["peak_bytes"]));
  }
  return points;
}

}  // namespace

json sweep_report(const json& report) {
  const bool ran = report.contains("runs");
  return {{"format", "spool-sweep-report"},
          {"format_version", 1},
          {"title", sentence("Peak memory and step time of ", report["model"].get<std::string>(),
                             ran ? ", measured on " : ", foretold for ",
                             report["machine"].get<std::string>())},
          {"step", report["step"]},
          {"points", ran ? measured_points(report["runs"]) : foretold_points(report)}};
}

}  // namespace spool::benchmarks
