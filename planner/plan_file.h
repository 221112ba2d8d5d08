#pragma once

// Plans in files (plan_json.h has the format).  The same plan makes the same bytes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "spool/autograd/plan.h"

namespace spool {

// The run that a plan was made for.
struct PlannedFor {
  int64_t loss_rows = 0, mlp_rows = 0;  // of a chunk of the loss, and of an MLP; 0: all
  size_t budget = 0, peak = 0;          // bytes of the device; the peak is foretold
  std::string machine = {};             // its name
  bool operator==(const PlannedFor&) const = default;
};

struct StoredPlan {
  Plan plan = {};
  std::optional<PlannedFor> made_for = {};  // none: not known
  bool operator==(const StoredPlan&) const = default;
};

// The file appears under its name only when it is complete.  A plan that load_plan() would not read
// back as it is, is refused.
void save_plan(const std::string& path, const StoredPlan&);
StoredPlan load_plan(const std::string& path);

}  // namespace spool
