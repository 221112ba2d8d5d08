#pragma once

// A fingerprint is a 64-bit hash of everything about a tape that a plan for it depends on: the op
// of each node, its attributes, the values it reads and computes, their shapes and types, which of
// them are parameters or inputs, and which need a gradient.  Data, addresses, the device, and the
// chunks and regions that come from the plan itself are not part of it, so a rehearsal's tape has
// the fingerprint of the real one.  It is the same on every machine.
//
// Fingerprints are cumulative: the one after node n covers nodes 0..n, so the first one that
// differs between two tapes belongs to the first node that differs.

#include "spool/autograd/program.h"

namespace spool {

// The fingerprint before the first node.
inline constexpr uint64_t empty_fingerprint = 0;

uint64_t fingerprint_after(uint64_t before, const Node&, const IdTable<ValueId, Value>&);

// The fingerprint after each node.
IdTable<NodeId, uint64_t> fingerprints(const Program&);

// Throws if the plan has fingerprints and this node, the last so far, differs from the node of the
// plan's tape.  The nodes before it have passed this check.
void check_fingerprint(const Plan&, const Program&, NodeId);
// Throws if the plan has fingerprints and a complete tape has fewer nodes than the plan's.
void check_complete(const Plan&, const Program&);

}  // namespace spool
