#pragma once

// A fingerprint says of a tape what a plan for it depends on, in 64 bits: of every node the op, its
// attributes, which values it reads and makes, their shapes and types, which of them are
// parameters or inputs, and which need a gradient; and the scopes it is in.  Data, addresses and
// the device are no part of it, so a rehearsal's tape has that of the real one; nor are the chunks
// and regions that come from the plan itself.  It is the same on every machine.
//
// It runs along the tape: that after node n covers nodes 0..n, so the first that differs between
// two tapes is the first node that does.

#include "spool/autograd/tape.h"

namespace spool {

// Before the first node.
inline constexpr uint64_t fingerprint_of_nothing = 0;

// Of a scope that is opened before this node, in one with the fingerprint `around`, or in none, 0.
uint64_t fingerprint_of_scope(uint64_t around, const ScopeOptions&, NodeId first);

uint64_t fingerprint_after(uint64_t before, const Node&, const std::vector<Value>&);

// After each node.
std::vector<uint64_t> fingerprints(const Tape&);

// Throws a sentence if the plan says what its tape looks like and this last node of a tape, whose
// nodes before it were found to fit, is not that tape's.
void check_fingerprint(const Plan&, const Node&, NodeId, const std::vector<Value>&);
// The same for the whole tape, to which nothing is added any more.
void check_complete(const Plan&, const Tape&);

}  // namespace spool
