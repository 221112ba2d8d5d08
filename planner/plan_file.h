// Public: one of the headers of docs/public-headers.md.
#pragma once

// Saves and loads plans as files (plan_json.h has the format).  Equal plans have equal bytes.

#include <string>

#include "spool/planner/stored_plan.h"

namespace spool {

// The file appears under its name only when it is complete.  Throws if load_plan() would not read
// the same plan back.
void save_plan(const std::string& path, const StoredPlan&);
StoredPlan load_plan(const std::string& path);

}  // namespace spool
