#pragma once

// A chunk of a region is a tape for some of the region's rows, with one region over all of its
// nodes.  The nodes are recorded, not run: wanted values, in forward or for backward, are
// recomputed as in any region, and backward is that of any tape.

#include "spool/autograd/chunks/chunk_runner.h"
#include "spool/autograd/tape.h"

namespace spool {

// Values are named by their ids on the whole tape.
class Tape::Chunk {
 public:
  // `options` are those of the whole tape; `inputs` are the region's inputs, without parameters,
  // that the chunk will need.
  Chunk(Stream&, const TapeOptions& options, const Program& whole, const ChunkedRegion&,
        const ChunkOfTape&, const Tensors& inputs, bool recording);

  // Makes compute() compute a leaf: one that carries the index, in its rows of `whole`; any other,
  // in memory of its own, as this chunk's summand.
  void want(ValueId leaf, const Tensor& whole);
  void compute();
  Tensor computed(ValueId leaf);

  // backward() begins at these leaves, with its rows of their whole gradients, and writes the
  // gradients of inputs into their rows of `whole`.
  void begin_backward_at(ValueId leaf, const Tensor& gradient);
  void place_gradient(ValueId input, const View& whole, bool accumulate);
  void backward();
  // Whether backward() has written the input's gradient.
  bool has_gradient(ValueId input) const;

 private:
  ValueId local(ValueId v) const { return region_.local_id.at(v); }
  void add_inputs(const Program& whole, const Tensors& inputs);
  void add_nodes(const Program& whole);
  std::shared_ptr<const Op> part_of_node(size_t number, const Program& whole) const;

  const ChunkedRegion& region_;
  const ChunkOfTape& place_;
  Tape tape_;
};

}  // namespace spool
