#pragma once

// The context that all ops of a tape share; it tells where an op's tensors are in the whole batch.

#include <cstdint>

#include "spool/autograd/plan.h"
#include "spool/kernels/launch.h"

namespace spool {

class Gradients;     // engine/gradients.h
struct Program;      // program.h
struct TapeOptions;  // tape_options.h

struct OpContext {
  Stream& stream;
  const TapeOptions& options;
  const Program& program;
  Gradients& gradients;

  // Index of the first element of an input or an output of that node in the whole, of which this
  // tape, or this chunk, has some rows.
  int64_t first_element(const View&, NodeId) const;
  // Memory that lives as long as the Tensor, in the name of that node's op.
  Tensor scratch(const Spec&, NodeId) const;
};

}  // namespace spool
