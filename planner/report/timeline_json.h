#pragma once

// The JSON that write_trace() writes (timeline.h says what is in it).

#include <nlohmann/json_fwd.hpp>

#include "spool/planner/report/timeline.h"

namespace spool {

nlohmann::json trace_json(const std::vector<NamedTrace>&);

}  // namespace spool
