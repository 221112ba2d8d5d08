#pragma once

// Prints the strategies of an op as a table for people.

#include <string>

#include "spool/planner/sharding/op_strategies.h"

namespace spool {

// The op and its operands; a line for each strategy, with the state of each value and what ranks
// exchange, in bytes and, with a machine, the seconds of all; and those that do not divide.
std::string shard_table(const OpStrategies&);

}  // namespace spool
