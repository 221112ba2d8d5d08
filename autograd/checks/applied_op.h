#pragma once

// Finds out whether an op's index notation, Op::indices(), is true, by running the op.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spool/autograd/checks/op_sample.h"
#include "spool/autograd/notation/notation.h"
#include "spool/autograd/notation/part_of_op.h"

namespace spool::op_checks {

// A tensor's numbers on the host.
struct HostTensor {
  Spec spec = {};
  std::vector<double> numbers = {};
  bool constant = false;  // as in op_sample.h
};

// An op, its inputs, and the notation that it is checked against.
struct AppliedOp {
  std::shared_ptr<const Op> op = {};
  std::vector<HostTensor> inputs = {};  // all but those of i32 and constants have a gradient
  std::vector<size_t> operands = {};    // for each operand of the op, which input it is
  Notation notation = {};
  bool recording = true, backward_follows = false;
  bool loss_scale = true;  // without it a mean loss divides by the targets of its own tape

  // Of an input; without indices if the notation does not mention it.
  const Term& term_of_input(size_t input) const;
  std::vector<Spec> output_specs() const;
};

// The sample's op, with its own notation.
AppliedOp applied_op(const OpSample&, bool backward_follows = false);
// The same op, checked against another notation.
AppliedOp claiming(AppliedOp, std::string_view notation);
// The same op, on floating-point inputs of another type.
AppliedOp in_type(AppliedOp, DType);

// What a run of the op is given, and what it computes.
struct OpArguments {
  std::vector<HostTensor> inputs = {};
  std::vector<HostTensor> upstream = {};  // by output; without numbers: not a root of backward
  std::vector<Spec> outputs = {};
  Place place = {.node = 0};
};
struct OpResults {
  std::vector<HostTensor> outputs, inputs;  // after forward, which may write to a cache
  std::vector<HostTensor> gradients;        // by input; none if there are no roots
};
constexpr size_t op_memory = size_t{16} << 20;
OpResults run(const AppliedOp&, const OpArguments&, Stream&);

// A tensor around an index.  Its dimension has parts, one after another, of so many units for each
// value of the index; with one part of one unit, element (b, i, a) is at
// (b * extent + i) * after + a.
struct Around {
  int64_t before = 1, extent = 1, after = 1;
  std::span<const int64_t> parts = {};

  int64_t dimension() const;
  // The value of the index at this element.
  int64_t value(int64_t element) const;
};

// The term carries the index, and outlives the result.
Around around(char index, const Term&, const Shape&);

// Whether the index is first in each term it is in, and has no parts.
bool leads_everywhere(const Notation&, char index);
// The separable indices that lead everywhere, and the others.
std::string leading_indices(const Notation&);
std::string other_separable_indices(const Notation&);

// The shape of a part along a first index, which may stand for several dimensions.
enum class PartForm {
  rows,    // they become one dimension, cut anywhere: a part of (B, T, C) is (rows, C)
  slices,  // the tensor keeps its dimensions, and the part has some of the first
};

struct Cutting {
  char index;
  int64_t parts;
  PartForm form = PartForm::slices;
};

// Results of parts against those of the whole: the largest difference, relative to the largest
// number of its tensor, and which part of which tensor has it.
struct Apart {
  double most = 0;
  std::string where = {};
};
struct PartsDifference {
  Apart outputs, gradients;
};
// Runs the op forward and backward, on the whole, and on parts along the index, each on a tape of
// its own.  Tensors that carry the index are cut, gradients of outputs included; others are given
// whole to each part, and what is added to a sum (+) to the first.  Results that carry it are
// joined; others, such as gradients of weights, are added up, or are whole in each part, as the
// notation says.
PartsDifference difference_of_parts(const AppliedOp&, const Cutting&);

// Changes elements of inputs, one at a time, and finds which elements of outputs change.
struct Influences {
  std::string forbidden;      // the first between unequal places of a separable index; or empty
  std::vector<bool> matters;  // by input: some element of it changes some output
};
Influences find_influences(const AppliedOp&);

}  // namespace spool::op_checks
