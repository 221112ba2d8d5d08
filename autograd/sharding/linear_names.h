#pragma once

// The names that ColossalAI gives to strategies of a linear over two axes: of y = x W it names what
// cuts the rows, the inputs and the outputs: "S0R = S0S1 x S1R_0".  R: not cut, S0: cut along axis
// 0, _0: the leading dimension that is cut, among several.
// [Li et al., "Colossal-Auto", 2023; colossalai/auto_parallel, LinearProjectionStrategyGenerator]

#include <optional>
#include <string>

#include "spool/autograd/sharding/strategies.h"

namespace spool {

// Nothing for another op, for another number of axes, and for strategies that ColossalAI does not
// list: those that cut two leading dimensions, and rows along one axis with the other idle.
std::optional<std::string> colossalai_name(const WholeOp&, const Strategy&, const MeshAxes&);

}  // namespace spool
