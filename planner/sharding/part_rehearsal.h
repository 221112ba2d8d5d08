#pragma once

// A part of an op by a strategy, rehearsed alone at the shapes of a rank, forward and backward.

#include <vector>

#include "spool/autograd/sharding/strategies.h"
#include "spool/runtime/device.h"

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

}  // namespace spool
