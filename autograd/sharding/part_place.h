#pragma once

// Where a rank's part of an op is in the whole, as a strategy cuts it.

#include <vector>

#include "spool/autograd/notation/part_of_op.h"
#include "spool/autograd/sharding/strategies.h"

namespace spool {

// Of the rank with these coordinates along the axes.  The exchange, for what the op joins, outlives
// the part.
Place part_place(NodeId, const WholeOp&, const Strategy&, const MeshAxes&,
                 const std::vector<int>& coordinates, PartExchange*);

// What a rank has of these values.
Specs part_specs(const std::vector<WholeValue>&, const std::vector<Sharding>&, const MeshAxes&);

}  // namespace spool
