#pragma once

// Reads a trace file as a viewer does.

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace spool::testing {

struct TimelineEvent {
  double begin, end;
  std::string name, category;
};

// The events that have a duration, by process and thread.
std::map<std::pair<int, int>, std::vector<TimelineEvent>> threads_of(const nlohmann::json& file);

}  // namespace spool::testing
