#pragma once

// The strategies of an op as JSON: op, notation, mesh, a list of strategies and one of those that
// are refused.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "spool/planner/sharding/op_strategies.h"

namespace spool {

// {op, notation, mesh, strategies: [{axes: ["n0", "k"], inputs: ["S0RRS1", "RS1", "R+P1"], outputs,
// forward: [{value, move, axes, bytes}], backward, seconds, colossalai}], refused: [{axes, why}]}.
// Axes of exchanges are numbers, bytes what a rank sends; seconds are null without a machine, and
// colossalai without a name.
nlohmann::json to_json(const OpStrategies&);

// Whether the JSON is of to_json().
bool is_of_strategies(const nlohmann::json&);

// Throws, of the setting json, if the file cannot be written, or is there and is none of these.
void check_strategies_file(const std::filesystem::path&);

}  // namespace spool
