#pragma once

// What a table of measurements says of its device, as JSON (device_table.h).

#include <nlohmann/json_fwd.hpp>

#include "spool/planner/machines/device_table.h"
#include "spool/runtime/files/json.h"

namespace spool {

nlohmann::json to_json(const MeasuredDevice&);
// Throws if a field is missing or wrong.
MeasuredDevice measured_device(const JsonField&);

}  // namespace spool
