#pragma once

// The JSON of a plan's units of parameters (plan_json.h).

#include <nlohmann/json_fwd.hpp>

#include "spool/autograd/plan.h"

namespace spool {

class JsonField;

nlohmann::json to_json(const PlannedUnit&);
// Throws, naming the file and the field, if it is not one.
PlannedUnit unit_from_json(const JsonField&);

}  // namespace spool
