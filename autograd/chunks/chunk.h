#pragma once

// A chunk of a region is a tape of some rows of it, with one region over all of its nodes.  They
// are recorded and not run: what is wanted of them, in forward or for backward, is recomputed as in
// any region, and its backward is that of any tape.

#include "spool/autograd/chunks/chunk_runner.h"
#include "spool/autograd/tape.h"

namespace spool {

class Tape::Chunk {
 public:
  // `options` are those of the whole tape, `inputs` what the region reads, parameters aside, as far
  // as the chunk will need it.
  Chunk(Stream&, const TapeOptions& options, const Program& whole, const ChunkedRegion&,
        const ChunkOfTape&, const Tensors& inputs, bool recording);

  // Values are named by their ids on the whole tape.  A leaf that carries the index is computed
  // in its rows of `whole`; the result is the leaf's part, or its summand.
  void want(ValueId leaf, const Tensor& whole);
  void compute();
  Tensor computed(ValueId leaf);

  void begin_backward_at(ValueId leaf, const Tensor& gradient);
  void place_gradient(ValueId input, const View& whole, bool accumulate);
  void backward();
  bool has_gradient(ValueId input) const;

 private:
  ValueId local(ValueId v) const { return region_.local_id.at(v); }
  void add_inputs(const Program& whole, const Tensors& inputs);
  void add_nodes(const Program& whole);

  const ChunkedRegion& region_;
  const ChunkOfTape& place_;
  Tape tape_;
};

}  // namespace spool
