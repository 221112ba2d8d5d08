#pragma once

// Plans in files (plan_json.h has the format).  The same plan makes the same bytes.

#include <filesystem>

#include "spool/planner/plan_json.h"

namespace spool {

// The file appears under its name only when it is complete.  A plan that load_plan() would not read
// back as it is, is refused.
void save_plan(const std::filesystem::path&, const StoredPlan&);
StoredPlan load_plan(const std::filesystem::path&);

}  // namespace spool
