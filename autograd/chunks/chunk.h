#pragma once

// A chunk of a region is a tape of some rows of it, with one region over all of its nodes.  They
// are recorded and not run: what is wanted of them, in forward or for backward, is recomputed as in
// any region, and its backward is that of any tape.

#include "spool/autograd/chunks/chunk_runner.h"
#include "spool/autograd/tape.h"

namespace spool {

// Values are named by their ids on the whole tape.
class Tape::Chunk {
 public:
  // `options` are those of the whole tape, `inputs` what the region reads, parameters aside, as far
  // as the chunk will need it.
  Chunk(Stream&, const TapeOptions& options, const Program& whole, const ChunkedRegion&,
        const ChunkOfTape&, const Tensors& inputs, bool recording);

  // compute() computes what is wanted: a leaf that carries the index in its rows of `whole`,
  // another one in memory of its own, as this chunk's summand.
  void want(ValueId leaf, const Tensor& whole);
  void compute();
  Tensor computed(ValueId leaf);

  // backward() begins at these leaves, with the whole gradients of which it takes its rows, and
  // puts the gradients of inputs into their rows of `whole`.
  void begin_backward_at(ValueId leaf, const Tensor& gradient);
  void place_gradient(ValueId input, const View& whole, bool accumulate);
  void backward();
  // Whether backward() has written it.
  bool has_gradient(ValueId input) const;

 private:
  ValueId local(ValueId v) const { return region_.local_id.at(v); }
  void add_inputs(const Program& whole, const Tensors& inputs);
  void add_nodes(const Program& whole);
  void set_shapes(const Node&, const Few<ValueId>& own, const Program& whole);

  const ChunkedRegion& region_;
  const ChunkOfTape& place_;
  Tape tape_;
};

}  // namespace spool
