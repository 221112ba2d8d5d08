#pragma once

// An op sample run forward and backward.

#include <optional>
#include <vector>

#include "tests/autograd/op_samples.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

struct SampleOptions {
  DType dtype = DType::f64;
  TapeOptions tape = {};
  int without_gradient = -1;       // this input needs none
  bool through_gelu = false;       // the outputs are saved by an op behind
  std::optional<Range> rows = {};  // of the leading index of what `carries` it
  std::vector<bool> carries = {};
};

// The inputs of a sample, the same on every device and for every dtype but for rounding.
class SampleRun {
 public:
  SampleRun(const OpSample&, Stream&, const SampleOptions& = {});

  // Runs the op; afterwards gradients, by weights drawn for the outputs.
  void forward();
  void backward();

  Tape& tape() { return *tape_; }
  const std::vector<Var>& outputs() const { return outputs_; }
  std::vector<std::vector<double>> output_values() const;
  // Of every input; absent, and empty, where it has none.
  std::vector<Tensor> gradient_tensors() const;
  std::vector<std::vector<double>> gradients() const;
  // sum_i w[i] y[i] for the weights that backward() uses.
  double weighted_sum() const;
  // Floating inputs, to be changed by finite differences.
  const std::vector<Tensor>& inputs() const { return tensors_; }
  // A new tape over the same tensors.
  void rewind();

 private:
  Tensor make(const SampleInput&, size_t index);
  std::vector<Tensor> weights() const;

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

}  // namespace spool::testing
