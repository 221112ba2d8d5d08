#include "spool/autograd/checks/applied_op.h"

#include <algorithm>
#include <numeric>

#include "spool/autograd/checks/sample_run.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/numbers.h"

namespace spool::op_checks {
namespace {

using numbers::values;

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

TapeOptions tape_options(const AppliedOp& applied, Stream& stream) {
  const HostTensor random{{Shape{4}, DType::i32}, {11, 22, 33, 44}};
  const HostTensor scale{{Shape{1}, accumulator(applied.inputs.front().spec.dtype)}, {0.37}};
  return {.recording = applied.recording,
          .backward_follows = applied.backward_follows,
          .loss_scale = applied.loss_scale ? to_device(scale, stream) : Tensor(),
          .random = to_device(random, stream)};
}

}  // namespace

const Term& AppliedOp::term_of_input(size_t input) const {
  const auto at = static_cast<size_t>(std::ranges::find(operands, input) - operands.begin());
  return notation.input(at);
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

int64_t Around::dimension() const {
  return extent * std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

int64_t Around::value(int64_t element) const {
  int64_t place = element / after % dimension();
  for (const int64_t units : parts) {
    if (place < units * extent) return place / units;
    place -= units * extent;
  }
  return extent;
}

OpResults run(const AppliedOp& applied, const OpArguments& arguments, Stream& stream) {
  Tape tape(stream, tape_options(applied, stream));
  std::vector<Tensor> inputs, outputs, gradients;
  std::vector<Var> vars;
  for (const HostTensor& t : arguments.inputs) {
    inputs.push_back(to_device(t, stream));
    vars.push_back(tape.input(inputs.back(), !t.constant && t.spec.dtype != DType::i32));
  }
  std::vector<Operand> operands;
  for (const size_t i : applied.operands) operands.emplace_back(vars[i]);
  Specs specs;
  for (const Spec& spec : arguments.outputs) specs.push_back(spec);
  const Few<Var> made =
      tape.apply(std::make_shared<PartOfOp>(applied.op, specs, arguments.place), operands);
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

Around around(char index, const Term& term, const Shape& shape) {
  const auto [first, count] = term.dimensions(index, shape.rank());
  Around found{.extent = term.extent(index, shape), .parts = term.parts(index)};
  for (int d = 0; d < first; ++d) found.before *= shape[d];
  for (int d = first + count; d < shape.rank(); ++d) found.after *= shape[d];
  return found;
}

bool leads_everywhere(const Notation& notation, char index) {
  const auto leads = [=](const Term& term) {
    return !term.carries(index) || (term.first() == index && term.is_plain(index));
  };
  return std::ranges::all_of(notation.inputs, leads) &&
         std::ranges::all_of(notation.outputs, leads);
}

std::string leading_indices(const Notation& notation) {
  std::string found = notation.separable();
  std::erase_if(found, [&](char c) { return !leads_everywhere(notation, c); });
  return found;
}

std::string other_separable_indices(const Notation& notation) {
  std::string found = notation.separable();
  std::erase_if(found, [&](char c) { return leads_everywhere(notation, c); });
  return found;
}

}  // namespace spool::op_checks
