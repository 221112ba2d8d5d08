#pragma once

// What ranks have of a value, as numbers: parts are taken from the whole, and put together again.

#include <cstdint>
#include <vector>

#include "spool/autograd/sharding/sharding.h"

namespace spool::testing {

using Coordinates = std::vector<int>;  // of a rank, along each axis

// Of all ranks, the last axis innermost.
std::vector<Coordinates> all_ranks(const MeshAxes&);

// The positions, in the whole tensor, of the elements that a rank has, in their order.  `rows`: how
// many leading dimensions may become one.
std::vector<int64_t> positions(const WholeValue&, const Sharding&, const MeshAxes&,
                               const Coordinates&, int rows = Shape::max_rank);

// A rank's part; of a partial value the first rank has all, and the others zeros.
std::vector<double> part_of(const std::vector<double>& whole, const WholeValue&, const Sharding&,
                            const MeshAxes&, const Coordinates&);

// Puts parts together, as all ranks have them in the order of all_ranks(): summands are added.
std::vector<double> whole_of(const std::vector<std::vector<double>>& parts, const WholeValue&,
                             const Sharding&, const MeshAxes&);

// The sharding of the value's gradient: a summand where the value is shared, whole where it is
// partial.
Sharding gradient_of(Sharding, const MeshAxes&);

// All shardings into which the value divides.
std::vector<Sharding> all_shardings(const WholeValue&, const MeshAxes&);

}  // namespace spool::testing
