#pragma once

// A plan and the run that it was made for: the contents of a plan file.

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

}  // namespace spool
