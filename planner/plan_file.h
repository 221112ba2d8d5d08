// Public: one of the headers of docs/public-headers.md.
#pragma once

// Plans in files (plan_json.h has the format).  The same plan makes the same bytes.

#include <string>

#include "spool/planner/stored_plan.h"

namespace spool {

// The file appears under its name only when it is complete.  A plan that load_plan() would not read
// back as it is, is refused.
void save_plan(const std::string& path, const StoredPlan&);
StoredPlan load_plan(const std::string& path);

}  // namespace spool
