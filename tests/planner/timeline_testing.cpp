#include "tests/planner/timeline_testing.h"

#include <nlohmann/json.hpp>

namespace spool::testing {

std::map<std::pair<int, int>, std::vector<TimelineEvent>> threads_of(const nlohmann::json& file) {
  std::map<std::pair<int, int>, std::vector<TimelineEvent>> threads;
  for (const nlohmann::json& e : file["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const double begin = e["ts"], end = begin + e["dur"].get<double>();
    threads[{e["pid"], e["tid"]}].push_back({begin, end, e["name"], e["cat"]});
  }
  return threads;
}

}  // namespace spool::testing
