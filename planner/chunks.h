// Public: one of the headers of docs/public-headers.md.
#pragma once

// Plans that run parts of a tape's work one after the other: ops in chunks, and regions of any
// model (autograd/chunks/cut.h) in chunks.

#include <compare>
#include <optional>

#include "spool/autograd/program.h"

namespace spool {

// Cuts every node of the program that allows it into chunks of at most `rows` rows.
Plan chunk_rows(const Program&, int64_t rows);

// The region of nodes `first` to `last`, in chunks of at most `rows` of the index along which they
// can be cut; nothing if that is one chunk, which is no region.  The program is a whole one, of a
// tape that has run, since the leaves are what it reads elsewhere or its caller has read.  Throws
// what cut() says if the nodes cannot be cut.
std::optional<Region> chunk_region(const Program&, NodeId first, NodeId last, int64_t rows);

// Nodes that run in chunks.
struct NodesInChunks {
  NodeId first = 0, last = 0;
  int chunks = 1;
  auto operator<=>(const NodesInChunks&) const = default;
};

// Those of a plan's regions, in its order; and the regions of some nodes in a program as above.
// Throws, as chunk_region() does, if nodes cannot be cut, or not into so many chunks.
std::vector<NodesInChunks> nodes_in_chunks(const Plan&);
std::vector<Region> regions_of(const Program&, const std::vector<NodesInChunks>&);

// Nodes that can run in chunks, and the extent of the index that cuts them.
struct CuttableNodes {
  NodeId first = 0, last = 0;
  int64_t extent = 0;
  bool operator==(const CuttableNodes&) const = default;
};

// The spans of nodes that can run in chunks, and that a further node on either side would prevent
// from that, or would give another extent.  By extent, the largest first, then by node; a span of
// one extent may lie in one of another.  No span crosses a border of an outermost scope or of a
// checkpoint.  Each is grown from a node of its extent: where nodes that do not read each other's
// values alternate, as in no block of a transformer, some are shorter than they could be.
std::vector<CuttableNodes> find_regions(const Program&);
// Those within nodes `first` to `last`.
std::vector<CuttableNodes> find_regions(const Program&, NodeId first, NodeId last);

// The regions that run the MLP of each block in chunks of at most `rows` rows; nothing of blocks
// that have no more rows, and of those that cannot be cut.  A block is an outermost scope.  Its
// MLP, in whatever way the model is written, begins with the op that feeds the maker of the block's
// widest value (a norm, which feeds the first product), and ends with the block.  Throws if the
// program has no block whose MLP can be cut.
std::vector<Region> chunk_mlps(const Program&, int64_t rows);

}  // namespace spool
