#pragma once

// Gathers a parameter that ranks store in flat parts (flat_parts.h), as an op on the tape: what it
// gathers is kept for backward, or gathered again, as any value is.
//
// The gradient of what it gathers is the parameter's, whole, which is summed over ranks as soon as
// it is complete (models/steps/exchange/gradient_exchange.h).

#include <memory>

#include "spool/autograd/op.h"
#include "spool/autograd/sharding/flat_parts.h"
#include "spool/autograd/sharding/rank_group.h"

namespace spool {

// The parameter, in flat parts of these ranks.  Both outlive the op.
std::shared_ptr<const Op> gather_op(Parameter&, const FlatParts&, const Spec& gathered,
                                    const RankGroup&);

}  // namespace spool
