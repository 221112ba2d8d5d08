#pragma once

// Lists the options of a segment: which of its values are recomputed, in chunks of how many rows
// its loss runs, and which of its nodes run in chunks (planner/chunks.h).
//
// With a value, everything is recomputed that costs nothing more: the other outputs of an op that
// runs again, and what only ops that run again read, which the tape would otherwise save for them.
// With a parameter that is gathered go the others of the segment, as a byte of each costs the same.

#include <cstdint>
#include <optional>
#include <vector>

#include "spool/planner/chunks.h"
#include "spool/planner/search/segments.h"

namespace spool {

// An output of a node, counted from the segment's first.
struct SegmentOutput {
  NodeId node = 0;
  int output = 0;
  auto operator<=>(const SegmentOutput&) const = default;
};

// A region in chunks; nodes are counted from the segment's first.
struct SegmentRegion {
  NodeId first = 0, last = 0;
  int chunks = 1;
  std::vector<SegmentOutput> leaves = {};  // rising
  bool operator==(const SegmentRegion&) const = default;
};

struct SegmentOption {
  std::vector<SegmentOutput> recomputed = {};  // rising
  int64_t chunk_rows = 0;                      // of the segment's ops that can be cut; 0: all
  std::optional<SegmentRegion> region = {};
  bool operator==(const SegmentOption&) const = default;
};

// Every subset of the segment's candidates, without repetitions; the first keeps all.  Values that
// one of these regions in chunks computes, and that are not read outside, are not candidates.
std::vector<SegmentOption> recompute_options(const Program&, const Segment&,
                                             const std::vector<Region>& = {});

// Options that run nodes of the segment in chunks: each span of nodes that can (find_regions()) and
// saves a good part of the segment's bytes, in a few numbers of chunks, with every subset of the
// candidates outside of it.
std::vector<SegmentOption> region_options(const Program&, const Segment&);

// The nodes that run again to recompute the values inside the region, counted from the segment's
// first, rising.
std::vector<NodeId> nodes_run_again(const Program&, const Segment&, const SegmentRegion&);

// The maximum number of chunks that the node can be cut into; 1: it cannot be cut.
int64_t max_chunks(const Program&, NodeId);
// The maximum of rows to cut over the segment's nodes; 0 if none can be cut.
int64_t chunkable_rows(const Program&, const Segment&);

// Whether under the option this value, which is saved in the segment, can be kept or offloaded: it
// is neither recomputed nor computed a chunk at a time.
bool is_kept(const SegmentOption&, const Program&, const Segment&, ValueId);

// Writes what the option recomputes into the plan, whose table of placements must have its full
// length, and adds its region.
void apply(const SegmentOption&, const Program&, const Segment&, Plan&);

}  // namespace spool
