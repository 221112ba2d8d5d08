// Public: one of the headers of docs/public-headers.md.
#pragma once

// Plans that run parts of a tape in chunks, one after the other: single ops, or regions of any
// model (autograd/chunks/cut.h).

#include <compare>
#include <optional>

#include "spool/autograd/program.h"

namespace spool {

// Chunks of a loss or an MLP, beyond which more save next to nothing.
inline constexpr int max_tried_chunks = 1024;

// Cuts every node of the program that allows it into chunks of at most `rows` rows.
Plan chunk_rows(const Program&, int64_t rows);

// The region of nodes `first` to `last` in chunks of at most `rows` rows of their separable index;
// nothing if that is one chunk.  Needs the program of a whole tape that has run: the leaves are the
// values that it reads outside the region or that its caller has read.  Throws as cut() does if the
// nodes cannot be cut.
std::optional<Region> chunk_region(const Program&, NodeId first, NodeId last, int64_t rows);

// Nodes that run in chunks.  With a last node of -1: the parts of one attention's backward
// (kernels/attention_sizes.h), which Plan::chunks has.
struct NodesInChunks {
  NodeId first = 0, last = 0;
  int chunks = 1;
  auto operator<=>(const NodesInChunks&) const = default;
};

// The parts of each attention by a plan; those among nodes; and a plan with the parts among nodes.
std::vector<NodesInChunks> parts_of(const Program&, const Plan&);
std::vector<NodesInChunks> parts_in(std::vector<NodesInChunks>);
Plan with_parts(Plan, const std::vector<NodesInChunks>&);

// Converts a plan's regions in chunks to nodes, in the plan's order, and nodes to regions of a
// program as above.  Throws, as chunk_region() does, if nodes cannot be cut into that many chunks.
std::vector<NodesInChunks> nodes_in_chunks(const Plan&);
std::vector<Region> regions_of(const Program&, const std::vector<NodesInChunks>&);

// Nodes that can run in chunks, and the extent of the index that cuts them.
struct CuttableNodes {
  NodeId first = 0, last = 0;
  int64_t extent = 0;
  bool operator==(const CuttableNodes&) const = default;
};

// The maximal spans of nodes that can run in chunks: with one more node on either side, a span
// could not be cut, or would have another extent.  Sorted by extent, the largest first, then by
// node; spans of different extents may nest.  No span crosses a border of an outermost scope or of
// a checkpoint.  Each is grown from a node of its extent, so where independent nodes alternate,
// which no transformer block has, some spans are shorter than possible.
std::vector<CuttableNodes> find_regions(const Program&);
// The spans within nodes `first` to `last`.
std::vector<CuttableNodes> find_regions(const Program&, NodeId first, NodeId last);

// The regions that run the MLP of each block in chunks of at most `rows` rows; none for blocks that
// have no more rows or cannot be cut.  A block is an outermost scope.  However the model is
// written, the MLP begins with the op whose output (a norm's) feeds the producer of the block's
// widest value, and ends with the block.  Throws if no block has an MLP that can be cut.
std::vector<Region> chunk_mlps(const Program&, int64_t rows);
// The MLPs of the blocks within nodes `first` to `last` that can run in chunks.
std::vector<CuttableNodes> cuttable_mlps(const Program&, NodeId first, NodeId last);

}  // namespace spool
