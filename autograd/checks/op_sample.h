// Public: one of the headers of docs/public-headers.md.
#pragma once

// OpSample is a small application of an op, by which check_op() checks the op: the inputs, which
// are drawn at random, and a function that applies it.  To check all of an op, give a sample for
// each of its forms.

#include <functional>
#include <string>
#include <vector>

#include "spool/autograd/tape.h"

namespace spool {

struct SampleInput {
  Shape shape = {};
  int32_t below = 0;          // above 0: i32, uniform in [0, below), and no gradient
  bool parameter = false;     // given to the op as a Parameter, not as a Var
  bool constant = false;      // no gradient, and f32 in a bf16 sample, as a table of angles
  double deviation = 1;       // standard deviation of its numbers
  double mean = 0;            // of its numbers
  int32_t ignored_every = 0;  // above 0: every ignored_every-th integer is -100
  // Not empty: the shape in a second check of threads, large enough that each loop of the kernels
  // has several pieces.  An input without one has `shape` there too.
  Shape large = {};

  bool has_gradient() const { return below == 0 && !constant; }
};

// How far numbers of a type may be apart, relative to the largest one of their tensor.
struct OpTolerance {
  double differences = 0;  // of a gradient from finite differences in this type
  double outputs = 0;      // from those in the widest type
  double gradients = 0;    // from those in the widest type
  double chunks = 0;       // of what chunks make up from the whole
  double devices = 0;      // of a gradient from the cpu's; of an output, half as much
};

struct OpSample {
  std::string name = {};  // of the sample, in sentences
  std::vector<SampleInput> inputs = {};
  // Applies the op, one, to the inputs; returns the outputs that have a gradient.
  std::function<std::vector<Var>(const std::vector<Operand>&)> apply = {};
  int chunks = 1;  // how many chunks of its own (Op::max_chunks()) to try, at most
  // The floating types that its kernels have, the widest first.  Differences and the notation want
  // f64; f32 alone will do, with larger tolerances.
  std::vector<DType> types = {DType::f64, DType::f32, DType::bf16};
  OpTolerance f64 = {.differences = 2e-8, .chunks = 1e-14};
  OpTolerance f32 = {
      .differences = 2e-3, .outputs = 2e-6, .gradients = 4e-6, .chunks = 2e-6, .devices = 8e-6};
  OpTolerance bf16 = {.outputs = 4e-2, .gradients = 6e-2, .chunks = 2e-2, .devices = 4e-2};
};

}  // namespace spool
