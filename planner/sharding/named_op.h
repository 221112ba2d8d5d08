#pragma once

// An op of a program with the names of its operands and of what its indices count, for sentences.

#include <span>
#include <string>

#include "spool/autograd/sharding/whole_op.h"

namespace spool {

WholeOp named_op(const Program&, NodeId, const std::vector<WholeValue>&);
// The parts of packed q, k and v, in units of the heads that h counts; empty: the op has none.
std::span<const int64_t> heads_of(const Notation&);
// "linear nk,ok,+o->no of h.0.attn.c_attn.weight (node 3)".
std::string node_in_words(const Program&, NodeId);

}  // namespace spool
