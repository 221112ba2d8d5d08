#pragma once

// Owns the gradients of a tape's values: it allocates them, and decides whether an op's kernel
// writes its contribution or adds it.
//
// Memory is allocated at the first write and added to afterwards.  Values may share it: the op add
// passes one gradient to both of its inputs.  Shared memory is copied before it is written to.  A
// parameter's gradient lives in the Parameter, until the optimizer frees it; with several
// contributions a step it is f32.

#include "spool/autograd/engine/recycled.h"
#include "spool/autograd/program.h"
#include "spool/kernels/launch.h"

namespace spool {

class Gradients {
 public:
  // The arguments must outlive this.
  Gradients(Stream& stream, const Program& program, int micro_batches)
      : stream_(stream), program_(program), micro_batches_(micro_batches) {}

  // In forward.  If the op that begins fails, undo_op() takes back what it did to gradients, except
  // for what it has added to those that existed.
  void begin_op() { undo_log_.clear(); }
  void undo_op();
  // Announces contributions to the value's gradient; they decide its type.
  void expect(ValueId, int contributions);
  // As contribute() below, for one more contribution than was announced.
  Grad contribute_in_forward(ValueId);

  // Gradient of the value; absent if there is none yet.  A parameter's is in the Parameter.
  const Tensor& of(ValueId) const;
  // Whether it is known to be 1.
  bool is_one(ValueId v) const { return gradients_.contains(v) && gradients_[v].is_one; }

  // Begins backward at a value, with this gradient; absent: 1.
  void begin_at(ValueId, const Tensor& gradient);
  // Memory for a contribution, which the caller must write or add to; absent if the value needs no
  // gradient.
  Grad contribute(ValueId);
  // As contribute(), in the memory of `from`'s gradient if nothing else reads it and it is the
  // first contribution; else absent.
  Grad take_over(ValueId, ValueId from);
  // Makes the tensor, a whole contribution, the value's gradient; false if it is not the first, or
  // the value is a parameter.
  bool share(ValueId, const Tensor& contribution, bool is_one);
  void free(ValueId);
  // Frees the gradients that this tape has begun, those of parameters included.
  void free_all();

  // Type of the value's gradient, which need not exist yet.
  DType type(ValueId) const;
  // For the tape of a chunk: contributions to the value's gradient go to this memory.
  void place(ValueId, const Grad& destination);
  // Whether anything was written there.
  bool has_written(ValueId v) const { return places_[v].written; }

  // Forgets values from this one on.
  void forget_from(ValueId);

 private:
  struct Gradient {
    Tensor tensor = {};
    int contributions = 0;  // announced so far
    bool is_one = false;
  };
  // The memory for the gradient of a value on the tape of a chunk; none: it gets its own.
  struct Place {
    Grad destination = {};
    bool written = false;
  };
  // What the op in progress has done to a gradient in forward.
  struct Undo {
    ValueId value = -1;
    int contributions = 0;   // announced
    bool allocated = false;  // the gradient
  };
  Gradient& at(ValueId v) {
    if (!gradients_.contains(v)) [[unlikely]]
      grow();
    return gradients_[v];
  }
  void grow();
  bool is_placed(ValueId v) const { return places_.contains(v) && places_[v].destination; }
  DType type(const Parameter&, int contributions) const;
  Grad contribute_to(const Value& of_parameter, int contributions);

  Stream& stream_;
  const Program& program_;
  int micro_batches_;
  Recycled<IdTable<ValueId, Gradient>> gradients_;
  IdTable<ValueId, Place> places_;  // empty but on the tape of a chunk
  std::vector<Undo> undo_log_;
  std::vector<Parameter*> begun_;  // whose gradients this tape has allocated
};

}  // namespace spool
