#include "spool/autograd/checks/sample_run.h"

#include "spool/autograd/ops.h"
#include "spool/runtime/numbers.h"
#include "spool/runtime/random.h"

namespace spool::op_checks {

using numbers::normal;
using numbers::values;

SampleRun::SampleRun(const OpSample& sample, Stream& stream, const SampleOptions& options)
    : sample_(sample), stream_(stream), options_(options) {
  const std::vector<int32_t> state{11, 22, 33, 44};
  random_ = make_tensor<int32_t>({4}, state, stream);
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    tensors_.push_back(make(sample.inputs[i], i));
    parameters_.push_back({.name = "input",
                           .data = tensors_.back(),
                           .trainable = static_cast<int>(i) != options.without_gradient});
  }
  rewind();
}

Tensor SampleRun::make(const SampleInput& input, size_t index) {
  const Shape& shape = options_.large && input.large.rank() > 0 ? input.large : input.shape;
  if (input.below == 0) {
    const DType type = input.constant ? accumulator(options_.dtype) : options_.dtype;
    return normal(shape, type, stream_, 100 + index, input.deviation, input.mean);
  }
  Random random(100 + index);
  std::vector<int32_t> ids(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(random.next() % static_cast<uint32_t>(input.below));
    const bool ignored =
        input.ignored_every > 0 && i % static_cast<size_t>(input.ignored_every) == 1;
    if (ignored) ids[i] = -100;
  }
  return make_tensor<int32_t>(shape, ids, stream_);
}

void SampleRun::rewind() {
  outputs_.clear();
  vars_.clear();
  TapeOptions tape = options_.tape;
  tape.random = random_;
  tape_ = std::make_unique<Tape>(stream_, tape);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    vars_.push_back(tape_->input(tensors_[i], has_gradient(i)));
  }
}

bool SampleRun::has_gradient(size_t input) const {
  return sample_.inputs[input].has_gradient() &&
         static_cast<int>(input) != options_.without_gradient;
}

void SampleRun::set_input(size_t input, const Numbers& to) const {
  const Tensor& t = tensors_[input];
  const std::vector<float> narrow(to.begin(), to.end());
  if (t.dtype() == DType::f64) {
    write<double>(t, to);
  } else if (t.dtype() == DType::f32) {
    write<float>(t, narrow);
  } else {
    write<bf16>(t, std::vector<bf16>(narrow.begin(), narrow.end()));
  }
}

size_t SampleRun::position_of(ValueId v) const {
  const Parameter* const parameter = tape_->values()[v].parameter;
  for (size_t i = 0; i < vars_.size(); ++i) {
    if (parameter ? parameter == &parameters_[i] : v == vars_[i].id()) return i;
  }
  fail(ErrorKind::invalid, sample_.name, ": value ", v, " is not an input");
}

void SampleRun::forward() {
  std::vector<Operand> operands;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    operands.push_back(sample_.inputs[i].parameter ? Operand(parameters_[i]) : Operand(vars_[i]));
  }
  outputs_ = sample_.apply(operands);
  if (!options_.through_gelu) return;
  for (Var& y : outputs_) y = gelu(y);
}

std::vector<Tensor> SampleRun::weights() const {
  std::vector<Tensor> all;
  for (const Var& y : outputs_) {
    all.push_back(normal(y.shape(), y.spec().dtype, stream_, 900 + all.size()));
  }
  return all;
}

void SampleRun::backward() {
  const std::vector<Tensor> dy = weights();
  std::vector<Root> roots;
  for (size_t i = 0; i < dy.size(); ++i) roots.push_back({outputs_[i], dy[i]});
  tape_->backward(roots);
}

double SampleRun::weighted_sum() const {
  const std::vector<Tensor> dy = weights();
  double sum = 0;
  for (size_t i = 0; i < dy.size(); ++i) {
    const auto w = values(dy[i]), y = values(outputs_[i].tensor());
    for (size_t k = 0; k < w.size(); ++k) sum += w[k] * y[k];
  }
  return sum;
}

std::vector<Numbers> SampleRun::output_values() const {
  std::vector<Numbers> all;
  for (const Var& y : outputs_) all.push_back(values(y.tensor()));
  return all;
}

std::vector<Tensor> SampleRun::gradient_tensors() const {
  std::vector<Tensor> all;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    all.push_back(sample_.inputs[i].parameter ? parameters_[i].grad : tape_->grad(vars_[i]));
  }
  return all;
}

std::vector<Numbers> SampleRun::gradients() const {
  std::vector<Numbers> all;
  for (const Tensor& t : gradient_tensors()) all.push_back(t ? values(t) : Numbers());
  return all;
}

SampleValues run_sample(const OpSample& sample, Stream& stream, const SampleOptions& options) {
  SampleRun run(sample, stream, options);
  run.forward();
  SampleValues found{.outputs = run.output_values(), .gradients = {}};
  run.backward();
  found.gradients = run.gradients();
  return found;
}

}  // namespace spool::op_checks
