#pragma once

// Cuts a program into segments, for which a search chooses one after the other: each outermost
// scope is one, as are the nodes between two of them.  Segments of one kind compute alike, as the
// layers of a transformer do, so measurements of one hold for all.
//
// The candidates of a segment are the values that backward reads and that a plan may recompute
// instead of keeping: those that no node of another segment saves, largest first, and only as many
// as a search can try all subsets of.  Parameters that are gathered are one candidate together,
// which takes the place of no other.  A span of nodes with more than twice as many is cut into
// several segments, where the fewest bytes cross.

#include <vector>

#include "spool/autograd/program.h"

namespace spool {

struct Segment {
  NodeId first = 0, last = 0;
  int kind = 0;  // equal for segments that compute alike
  std::vector<ValueId> candidates = {};
};

inline constexpr size_t max_candidates = 7;  // of a segment: 128 subsets

// Whether the first candidate stands for all parameters that are gathered.
bool has_gathered(const Program&, const Segment&);

// The program must be that of a whole tape that kept everything.  Every node is in one segment.
// Segments that differ in their nodes in these regions are of different kinds.
std::vector<Segment> segments_of(const Program&, const std::vector<Region>& = {});

// The kind of most segments.
int most_frequent_kind(const std::vector<Segment>&);

}  // namespace spool
