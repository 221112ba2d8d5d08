#pragma once

// A trace file as a viewer reads it.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace spool::testing {

struct TimelineEvent {
  double begin, end;
  std::string name, category;
};

// The events that have a duration, by process and thread.
inline std::map<std::pair<int, int>, std::vector<TimelineEvent>> threads_of(
    const nlohmann::json& file) {
  std::map<std::pair<int, int>, std::vector<TimelineEvent>> threads;
  for (const nlohmann::json& e : file["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const double begin = e["ts"], end = begin + e["dur"].get<double>();
    threads[{e["pid"], e["tid"]}].push_back({begin, end, e["name"], e["cat"]});
  }
  return threads;
}

}  // namespace spool::testing
