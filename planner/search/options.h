#pragma once

// The options of a segment: which of its values are recomputed, and into chunks of how many rows
// its loss is cut.
//
// A value is recomputed with what is needed for it and costs nothing more to leave out: other
// outputs of an op that runs again, and what only ops that run again read, which the tape would
// otherwise save for them.

#include <cstdint>
#include <vector>

#include "spool/planner/search/segments.h"

namespace spool {

// An output of a node, counted from the segment's first.
struct SegmentOutput {
  NodeId node = 0;
  int output = 0;
  auto operator<=>(const SegmentOutput&) const = default;
};

struct SegmentOption {
  std::vector<SegmentOutput> recomputed = {};  // rising
  int64_t chunk_rows = 0;                      // of the segment's ops that can be cut; 0: all
  bool operator==(const SegmentOption&) const = default;
};

// Every subset of the segment's candidates, without repetitions; the first keeps all.
std::vector<SegmentOption> recompute_options(const Program&, const Segment&);

// The chunks that a node can be cut into; 1: none.
int64_t max_chunks(const Program&, NodeId);
// The most of the segment's nodes; 0 if none can be cut.
int64_t chunkable_rows(const Program&, const Segment&);

// Whether the option recomputes this value.
bool is_recomputed(const SegmentOption&, const Program&, const Segment&, ValueId);

// Writes what the option recomputes into the plan, whose table of placements has its full length.
void apply(const SegmentOption&, const Program&, const Segment&, Plan&);

}  // namespace spool
