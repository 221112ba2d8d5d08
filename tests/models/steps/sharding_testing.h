#pragma once

// Ways to cut a recorded loss over a mesh.

#include <cstdint>

#include "spool/autograd/sharding/sharded_model.h"

namespace spool::testing {

// Any strategy for each op: one that divides.
Assignment random_assignment(const RecordedLoss&, const MeshAxes&, uint64_t seed);

}  // namespace spool::testing
