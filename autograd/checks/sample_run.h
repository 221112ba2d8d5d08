#pragma once

// Runs an op sample forward and backward, for check_op().

#include <memory>
#include <vector>

#include "spool/autograd/checks/op_sample.h"

namespace spool::op_checks {

using Numbers = std::vector<double>;

struct SampleOptions {
  DType dtype = DType::f64;
  TapeOptions tape = {};
  int without_gradient = -1;  // the input that needs no gradient
  bool through_gelu = false;  // a gelu behind the op saves its outputs
  bool large = false;         // its inputs have their large shapes
};

// The inputs are the same on every device and for every dtype, up to rounding.
class SampleRun {
 public:
  SampleRun(const OpSample&, Stream&, const SampleOptions& = {});

  // Runs the op, then its backward with random weights as gradients of the outputs.
  void forward();
  void backward();

  Tape& tape() { return *tape_; }
  const std::vector<Var>& outputs() const { return outputs_; }
  std::vector<Numbers> output_values() const;
  // Gradients by input; absent or empty where it has none.
  std::vector<Tensor> gradient_tensors() const;
  std::vector<Numbers> gradients() const;
  // sum_i w[i] y[i], with the weights of backward().
  double weighted_sum() const;
  const std::vector<Tensor>& inputs() const { return tensors_; }
  // Changes an input of a floating type.  The numbers are rounded to it.
  void set_input(size_t input, const Numbers&) const;
  // Which input of the sample this value of the tape is.
  size_t position_of(ValueId) const;
  // Begins a new tape with the same tensors.
  void rewind();

 private:
  Tensor make(const SampleInput&, size_t index);
  std::vector<Tensor> weights() const;

  bool has_gradient(size_t input) const;

  const OpSample& sample_;
  Stream& stream_;
  SampleOptions options_;
  Tensor random_;
  std::vector<Tensor> tensors_;
  std::vector<Parameter> parameters_;
  std::vector<Var> vars_;
  std::vector<Var> outputs_;
  std::unique_ptr<Tape> tape_;
};

// The results of a sample.
struct SampleValues {
  std::vector<Numbers> outputs, gradients;  // gradients by input
  bool operator==(const SampleValues&) const = default;
};
SampleValues run_sample(const OpSample&, Stream&, const SampleOptions& = {});

}  // namespace spool::op_checks
