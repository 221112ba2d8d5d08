#pragma once

// Runs the regions of a tape that run in chunks, forward and backward, as NodeRunner runs nodes.
// cut.h says how a region is cut, chunk.h what a chunk is.
//
// A region's leaves and the gradients of its inputs are allocated whole, before its first chunk,
// and each chunk writes its rows of them.  One without the index is a sum over the chunks, formed
// in rising order, in f32 (f64 for f64).  Such a gradient is rounded to its type once, after the
// last chunk, if its type is narrower.

#include <functional>
#include <unordered_map>
#include <vector>

#include "spool/autograd/chunks/cut.h"
#include "spool/autograd/chunks/deferred.h"
#include "spool/autograd/engine/gradients.h"
#include "spool/autograd/tape_options.h"

namespace spool {

// A region, and its values on the tapes of its chunks.
struct ChunkedRegion {
  NodeId first = 0, last = 0;
  int chunks = 1;
  Cut cut = {};
  std::vector<ValueId> leaves = {};                    // those that its chunks compute
  std::unordered_map<ValueId, ValueId> local_id = {};  // on the tape of a chunk
};

class ChunkRunner {
 public:
  // The arguments must outlive this.
  ChunkRunner(Stream& stream, const TapeOptions& options, const Program& program,
              Gradients& gradients)
      : stream_(stream), options_(options), program_(program), gradients_(gradients) {}

  // Prepares to run the region, which ends with this node.  Throws if it cannot be cut into chunks.
  const ChunkedRegion& prepare(RegionId, NodeId last);
  const ChunkedRegion& region(RegionId) const;

  // The values, without parameters, that are read to compute these leaves.
  std::vector<ValueId> inputs_of(RegionId, const std::vector<ValueId>& leaves) const;
  // Computes these leaves from those inputs.
  Tensors compute(RegionId, const std::vector<ValueId>& leaves, const Tensors& inputs,
                  bool in_forward) const;
  // Whether any leaf has a gradient.
  bool has_gradient(RegionId) const;
  // Adds to the gradients of what the region reads, from those of its leaves.
  void backward(RegionId, const Tensors& inputs) const;

 private:
  using RunChunk = std::function<void(const ChunkOfTape&)>;
  // The gradient of an input.
  struct Destination {
    ValueId value = -1;
    bool is_carried = false;  // it carries the index
    Grad to = {};
    Tensor sum = {};  // memory of `to`, if it has to be rounded
  };

  void check_chunks(const ChunkedRegion&) const;
  void check_leaves(const ChunkedRegion&, const std::vector<ValueId>& leaves) const;
  void run(const ChunkedRegion&, bool in_forward, const RunChunk&) const;
  std::vector<ValueId> with_gradients(const ChunkedRegion&) const;
  std::vector<ValueId> differentiated_inputs(const ChunkedRegion&) const;
  Destination destination(const ChunkedRegion&, ValueId) const;
  void round(const Destination&) const;

  Stream& stream_;
  const TapeOptions& options_;
  const Program& program_;
  Gradients& gradients_;
  std::unordered_map<RegionId, ChunkedRegion> regions_;
};

}  // namespace spool
