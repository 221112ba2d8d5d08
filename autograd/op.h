// Public: one of the headers of docs/public-headers.md.
#pragma once

// An Op is one differentiable step, written once: the specs of its outputs, forward, what it saves,
// and backward.  It launches kernels and knows no device; costs are the kernels'.
// docs/adding-an-op.md shows how to write one.

#include <array>
#include <cstdint>
#include <string>

#include "spool/autograd/attributes.h"
#include "spool/autograd/backward.h"
#include "spool/autograd/engine/few.h"
#include "spool/autograd/forward.h"

namespace spool {

using Specs = Few<Spec>;

// The kind of an op, for rules about all ops of a kind, such as what to recompute.  A norm's first
// output is what it normalises; its others are statistics, which are small and kept.
enum class OpKind : uint8_t { norm, activation, attention, product, gather, move, other };
template <>
inline constexpr std::array enumerator_names<OpKind>{"norm",   "activation", "attention", "product",
                                                     "gather", "move",       "other"};

// An input or an output of an op, by position.
struct Slot {
  bool output = false;
  int index = 0;
};
constexpr Slot in(int i) { return {false, i}; }
constexpr Slot out(int i) { return {true, i}; }
using Slots = Few<Slot>;

// Which inputs need a gradient.
class Needs {
 public:
  bool operator[](int i) const { return bits_ >> i & 1; }
  bool any() const { return bits_ != 0; }
  void set(int i) { bits_ |= 1u << i; }

 private:
  uint32_t bits_ = 0;
};

struct Begun;      // sharding/begun.h
struct Place;      // notation/part_of_op.h
struct Parameter;  // parameter.h

class Op {
 public:
  virtual ~Op() = default;

  // A string literal.
  virtual const char* name() const = 0;

  virtual OpKind kind() const { return OpKind::other; }

  // Everything in which two ops of this name may differ, for fingerprints and people; see
  // attributes.h.
  virtual std::string attributes() const { return {}; }

  // The dimensions of inputs and outputs in index notation: "nk,ok,+o->no".  The op can be cut into
  // parts along a lower-case index; it needs a capital one whole.  An index missing on the right is
  // summed over; a term behind + is added to that sum once.  The first index of a term stands for
  // all dimensions, possibly none, that the term's other indices leave.  A dimension may have parts
  // that are cut each by itself, of some units of an index: "n(i+i)->ni", "n(64h)->nhD".  Tensors
  // that the notation does not mention are used whole.  notation/notation.h has all of it.
  //
  // A part of an op has the attributes of the whole, so no attribute is an extent: what a part has
  // is seen in the shapes of its tensors.
  virtual const char* indices() const = 0;

  // Where it is in the op that it is a part of; null: it is whole.
  virtual const Place* place() const { return nullptr; }

  // The specs of the outputs.  Throws if the inputs do not fit.
  virtual Specs infer(const Specs& in) const = 0;

  virtual void forward(Forward&) const = 0;

  // Output 0 as a view of input 0, in the shape of its spec, for an op whose output needs no memory
  // of its own; else absent.  Where the output has a place already, as in a chunk, no view is made:
  // forward() copies if its output is not where the view would be.
  virtual Tensor view(const Tensor& input, const Spec& output) const {
    (void)input, (void)output;
    return {};
  }

  // The inputs and outputs that backward reads, given which inputs need a gradient.
  virtual Slots saves(const Needs&) const = 0;

  virtual void backward(Backward&) const = 0;

  // Whether output i has a gradient.  Outputs that exist only for backward have none.
  virtual bool differentiable(int output) const { return output == 0; }

  // Whether it reads inputs of the storage types, f16 and i8, and converts them itself; a tape
  // refuses to apply other ops to them.
  virtual bool reads_stored_types() const { return false; }

  // Whether forward() can run again with the same result and no other effect.
  virtual bool recomputable() const { return true; }

  // Whether forward() changes input i, such as a cache: it is read where it is, and never copied.
  virtual bool writes(int input) const { return (void)input, false; }

  // Of an op of kind gather, whose input is a rank's part of a parameter (sharding/gather_op.h):
  // the parameter, whose gradient is that of the output; and begins to gather it, which is all
  // that forward() would do.
  virtual Parameter* gathers() const { return nullptr; }
  virtual Begun begin(const Tensor& input, Stream&) const;

  // Whether forward() divides by a number of rows that only the whole batch knows, unless the tape
  // has a loss scale.
  virtual bool needs_loss_scale() const { return false; }

  // Number of chunks the work can be cut into, to shrink its scratch memory.
  virtual int64_t max_chunks(const Specs&) const { return 1; }
  // The same of one launch of backward, in parts: Plan::chunks has them for ops with more than one.
  virtual int64_t max_parts(const Specs&) const { return 1; }
};

}  // namespace spool
