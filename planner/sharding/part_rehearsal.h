#pragma once

// A part of an op by a strategy, rehearsed alone at the shapes of a rank, forward and backward, and
// what it exchanges with the others along indices that the op joins.

#include <vector>

#include "spool/autograd/sharding/strategies.h"
#include "spool/runtime/device.h"
#include "spool/runtime/ranks/mesh.h"

namespace spool {

// What a part gives the others along an index that the op joins.
struct JoinedBytes {
  char index = ' ';
  double bytes = 0;  // of one part
};

struct RehearsedPart {
  double seconds = 0;  // without exchanges
  std::vector<JoinedBytes> forward = {}, backward = {};
};

// Outputs that the whole op leaves out are as the op infers them from the part's inputs.
RehearsedPart rehearse_part(const Program&, NodeId, const WholeOp&, const Strategy&,
                            const MeshAxes&, const Machine&);

struct JoinedGather {
  int axis = 0;
  double bytes = 0;    // that a rank sends
  double seconds = 0;  // 0 without links
};
// To give all parts along an index what one has: along the inner axes first.
std::vector<JoinedGather> gathers_of(const JoinedBytes&, const Strategy&, const MeshAxes&,
                                     const std::vector<Link>&);
// Of all that it joins, forward and backward.
double seconds_of_joined(const RehearsedPart&, const Strategy&, const MeshAxes&,
                         const std::vector<Link>&);

}  // namespace spool
