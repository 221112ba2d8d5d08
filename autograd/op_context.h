#pragma once

// What the ops of a tape share, and what an op sees of its tape, forward as backward.

#include <cstdint>

#include "spool/autograd/plan.h"
#include "spool/kernels/launch.h"

namespace spool {

class GradientCheck;  // checks/gradient_check.h
class Gradients;      // engine/gradients.h
struct Node;          // program.h
struct Place;         // notation/part_of_op.h
struct Program;       // program.h
struct TapeOptions;   // tape_options.h

struct OpContext {
  Stream& stream;
  const TapeOptions& options;
  const Program& program;
  Gradients& gradients;
};

// A run of an op, forward or backward.
class OpRun {
 public:
  // Number of chunks the plan cuts the work into.
  int chunks() const;
  // The op's position on the tape; the same when it is recomputed.
  NodeId node() const;
  // Of a part of an op, where it is in the whole; null: it is whole.
  const Place* place() const;
  // Index of the first element of an input or an output in the whole, of which this tape, or this
  // part, has some rows.
  int64_t first_element(const View&) const;
  // The state of the random numbers, i32 (4); see kernels/dropout.h.  Throws if the tape has none.
  View random() const;
  // What a mean loss is multiplied by, f32 (1); absent: 1 / the valid targets of this tape.
  View loss_scale() const;

  Stream& stream() const { return context_.stream; }
  // Memory that lives as long as the Tensor, in the name of the op.
  Tensor scratch(const Spec&);
  template <class Kernel>
  void launch(const Kernel& k) {
    spool::launch(k, stream());
  }

 protected:
  // With a check, what the run hands out is checked.
  OpRun(const OpContext& context, NodeId id, GradientCheck* check);
  // The gradient of an input, which the op asked for.
  Grad hand_out(int input, const Grad&);

  const OpContext& context_;
  const Node& node_;
  NodeId id_;
  GradientCheck* check_;
};

}  // namespace spool
