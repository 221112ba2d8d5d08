#include "spool/autograd/checks/applied_op.h"

#include <algorithm>

#include "spool/autograd/checks/sample_run.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/numbers.h"

namespace spool::op_checks {
namespace {

using numbers::values;

// An op owned elsewhere, applied to the whole or to a part; outputs that have a gradient get its
// shape.
struct Borrowed final : Op {
  const Op& op;
  const std::vector<HostTensor>& gradients;  // of the outputs; empty ones are absent
  Borrowed(const Op& lent, const std::vector<HostTensor>& of_outputs)
      : op(lent), gradients(of_outputs) {}

  const char* name() const override { return op.name(); }
  OpKind kind() const override { return op.kind(); }
  std::string attributes() const override { return op.attributes(); }
  const char* indices() const override { return op.indices(); }
  // Sets the shapes of outputs that are parts, as the tape of a chunk does.
  Specs infer(const Specs& in) const override {
    Specs all = op.infer(in);
    for (size_t i = 0; i < std::min(all.size(), gradients.size()); ++i) {
      const Shape& shape = gradients[i].spec.shape;
      if (!gradients[i].numbers.empty() && shape.numel() == all[i].shape.numel()) {
        all[i].shape = shape;
      }
    }
    return all;
  }
  void forward(Forward& f) const override { op.forward(f); }
  Tensor view(const Tensor& input, const Spec& output) const override {
    return op.view(input, output);
  }
  Slots saves(const Needs& needs) const override { return op.saves(needs); }
  void backward(Backward& b) const override { op.backward(b); }
  bool differentiable(int output) const override { return op.differentiable(output); }
  bool recomputable() const override { return op.recomputable(); }
  bool needs_loss_scale() const override { return op.needs_loss_scale(); }
  int64_t max_chunks(const Specs& in) const override { return op.max_chunks(in); }
  int64_t max_parts(const Specs& in) const override { return op.max_parts(in); }
};

HostTensor to_host(const Tensor& t) {
  if (t.dtype() != DType::i32) return {t.spec(), values(t)};
  const std::vector<int32_t> whole = read<int32_t>(t);
  return {t.spec(), {whole.begin(), whole.end()}};
}

template <class T>
Tensor to_device(const HostTensor& t, Stream& stream) {
  const std::vector<T> numbers(t.numbers.begin(), t.numbers.end());
  return make_tensor<T>(t.spec.shape, numbers, stream);
}

Tensor to_device(const HostTensor& t, Stream& stream) {
  switch (t.spec.dtype) {
    case DType::f64:
      return to_device<double>(t, stream);
    case DType::f32:
      return to_device<float>(t, stream);
    case DType::bf16:
      return to_device<bf16>(t, stream);
    default:
      return to_device<int32_t>(t, stream);
  }
}

std::vector<HostTensor> to_host(const std::vector<Tensor>& all) {
  std::vector<HostTensor> host;
  for (const Tensor& t : all) host.push_back(t ? to_host(t) : HostTensor());
  return host;
}

TapeOptions tape_options(const AppliedOp& applied, int64_t first_row, Stream& stream) {
  const HostTensor random{{Shape{4}, DType::i32}, {11, 22, 33, 44}};
  const HostTensor scale{{Shape{1}, accumulator(applied.inputs.front().spec.dtype)}, {0.37}};
  return {.recording = applied.recording,
          .backward_follows = applied.backward_follows,
          .loss_scale = applied.loss_scale ? to_device(scale, stream) : Tensor(),
          .random = to_device(random, stream),
          .first_row = first_row};
}

std::string all_terms(const Notation& notation) {
  std::string all;
  for (const std::string& term : notation.inputs) all += ',' + term;
  for (const std::string& term : notation.outputs) all += ',' + term;
  return all;
}

}  // namespace

std::string AppliedOp::term_of_input(size_t input) const {
  const auto at = static_cast<size_t>(std::ranges::find(operands, input) - operands.begin());
  return at < notation.inputs.size() ? notation.inputs[at] : "";
}

std::string AppliedOp::term_of_output(size_t output) const {
  return output < notation.outputs.size() ? notation.outputs[output] : "";
}

std::vector<Spec> AppliedOp::output_specs() const {
  Specs in;
  for (const size_t i : operands) in.push_back(inputs[i].spec);
  const Specs out = op->infer(in);
  return {out.begin(), out.end()};
}

AppliedOp applied_op(const OpSample& sample, bool backward_follows) {
  CpuStream stream(op_memory, 1);
  AppliedOp applied{.backward_follows = backward_follows};
  SampleRun probe(sample, stream,
                  {.dtype = sample.types.front(), .tape = {.backward_follows = backward_follows}});
  probe.forward();
  check(probe.tape().nodes().size() == 1, sample.name, ": the sample applies ",
        probe.tape().nodes().size(), " ops, and is to apply one");
  for (const ValueId v : probe.tape().nodes().front().inputs) {
    applied.operands.push_back(probe.position_of(v));
  }
  for (const Tensor& t : probe.inputs()) {
    applied.inputs.push_back(to_host(t));
    applied.inputs.back().constant = sample.inputs[applied.inputs.size() - 1].constant;
  }
  Program program = probe.tape().take_program();
  applied.op = std::move(program.nodes.front().op);
  applied.notation = parse_notation(applied.op->indices());
  return applied;
}

AppliedOp claiming(AppliedOp applied, std::string_view notation) {
  applied.notation = parse_notation(notation);
  return applied;
}

AppliedOp in_type(AppliedOp applied, DType type) {
  for (HostTensor& t : applied.inputs) {
    if (t.spec.dtype != DType::i32) t.spec.dtype = t.constant ? accumulator(type) : type;
  }
  return applied;
}

std::vector<int64_t> extents(const std::string& term, const Shape& shape) {
  if (term.empty()) return {};
  const int others = static_cast<int>(term.size()) - 1, first = shape.rank() - others;
  check(first >= 0, "the indices '", term, "' are too many for ", shape);
  std::vector<int64_t> each{1};
  for (int i = 0; i < first; ++i) each[0] *= shape[i];
  for (int i = first; i < shape.rank(); ++i) each.push_back(shape[i]);
  return each;
}

OpResults run(const AppliedOp& applied, const OpArguments& arguments, Stream& stream) {
  Tape tape(stream, tape_options(applied, arguments.first_row, stream));
  std::vector<Tensor> inputs, outputs, gradients;
  std::vector<Var> vars;
  for (const HostTensor& t : arguments.inputs) {
    inputs.push_back(to_device(t, stream));
    vars.push_back(tape.input(inputs.back(), !t.constant && t.spec.dtype != DType::i32));
  }
  std::vector<Operand> operands;
  for (const size_t i : applied.operands) operands.emplace_back(vars[i]);
  const Few<Var> made =
      tape.apply(std::make_unique<Borrowed>(*applied.op, arguments.upstream), operands);
  std::vector<Root> roots;
  for (const Var& y : made) {
    const size_t i = outputs.size();
    outputs.push_back(y.tensor());
    if (i >= arguments.upstream.size() || arguments.upstream[i].numbers.empty()) continue;
    roots.push_back({y, to_device(arguments.upstream[i], stream)});
  }
  OpResults results{to_host(outputs), to_host(inputs), {}};
  if (roots.empty()) return results;
  tape.backward(roots);
  for (const Var& x : vars) gradients.push_back(tape.grad(x));
  results.gradients = to_host(gradients);
  return results;
}

Around around(char index, const std::string& term, const Shape& shape) {
  const std::vector<int64_t> each = extents(term, shape);
  const size_t at = term.find(index);
  Around found{.extent = each[at]};
  for (size_t i = 0; i < at; ++i) found.before *= each[i];
  for (size_t i = at + 1; i < each.size(); ++i) found.after *= each[i];
  return found;
}

bool carries(const std::string& term, char index) { return term.find(index) != std::string::npos; }

bool leads_everywhere(const Notation& notation, char index) {
  const std::string all = all_terms(notation);
  for (size_t at = all.find(index); at != std::string::npos; at = all.find(index, at + 1)) {
    if (all[at - 1] != ',') return false;
  }
  return true;
}

namespace {

std::string separable_indices(const Notation& notation, bool leading) {
  std::string found;
  for (const char c : all_terms(notation)) {
    if (!is_separable(c) || carries(found, c)) continue;
    if (leads_everywhere(notation, c) == leading) found += c;
  }
  return found;
}

}  // namespace

std::string leading_indices(const Notation& notation) { return separable_indices(notation, true); }

std::string other_separable_indices(const Notation& notation) {
  return separable_indices(notation, false);
}

}  // namespace spool::op_checks
