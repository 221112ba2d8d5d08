#include "spool/autograd/tape.h"

#include <algorithm>
#include <utility>

#include "spool/autograd/fingerprint.h"
#include "spool/autograd/homes.h"
#include "spool/autograd/survey.h"

namespace spool {

Tape::Tape(Stream& stream, TapeOptions options)
    : stream_(stream),
      options_(std::move(options)),
      gradients_(stream, program_, options_.micro_batches),
      saving_(stream, options_, program_),
      runner_(stream, options_, program_, gradients_),
      chunks_(stream, options_, program_, gradients_),
      regions_(options_, program_, saving_, runner_, chunks_) {
  check_plan(options_.plan);
  check_stream(options_.loss_scale, "TapeOptions::loss_scale");
  check_stream(options_.random, "TapeOptions::random");
  if (options_.survey) options_.survey->add_tape(stream);
  if (options_.homes) begin_homes(*options_.homes);
}

Tape::~Tape() {
  if (homes_) homes_->end_tape();
}

void Tape::begin_homes(Homes& homes) {
  homes_ = &homes;
  homes.begin_tape(/*is_planned=*/options_.homes != nullptr);
}

// Of a parameter that lives on the host, which an op reads.
const Tensor& Tape::data_on_device(const Parameter& p) {
  if (p.data || !p.homes || !options_.runs) return p.data;
  if (!homes_ && !options_.chunk) begin_homes(*p.homes);
  return data_of(p);
}

Program Tape::take_program() {
  check_not_applying("take_program");
  check(program_.open_scopes.empty(), "take_program: a scope of the tape is open; end it first");
  check(regions_.open_chunked() < 0,
        "take_program: a region that runs in chunks has not ended; apply its last op first");
  backward_began_ = true;
  return std::move(program_);
}

// Work of another stream may not have written the tensor yet.
void Tape::check_stream(const Tensor& t, const char* what) const {
  check(!t || &t.stream() == &stream_, what, ": ", t.spec(),
        " is on another stream than the tape; allocate it on the tape's, or copy it there");
}

// An op's forward() and hooks hold references to what would change.
void Tape::check_not_applying(const char* what) const {
  check(!applying_, what,
        ": it was used while another op of this tape runs or is saved, in its "
        "forward() or in a hook; launch kernels there, or use a tape of its own");
}

Var Tape::input(const Tensor& t, bool needs_grad) {
  check_not_applying("input");
  check(bool(t), "input: the tensor is absent");
  check_stream(t, "input");
  const bool has_grad = needs_grad && options_.recording;
  check(!has_grad || !is_only_stored(t.dtype()), "input: ", t.spec(), " is of a type that is only ",
        "stored, and cannot have a gradient; convert it first (Cast)");
  const ValueId v = program_.values.add({.spec = t.spec(), .needs_grad = has_grad});
  if (!options_.runs) given_.emplace(v, t);
  return {*this, v, t};
}

Var Tape::input(const Tensor& part, const Spec& whole) {
  check(!options_.runs, "input: a part is for a tape that does not run");
  const ValueId v = program_.values.add({.spec = whole});
  given_.emplace(v, part);
  return {*this, v, deferred_.promise(v, whole)};
}

Var Tape::input(Parameter& p) {
  check_not_applying("input");
  const ValueId v = resolve(p);
  const Tensor& data = data_on_device(p);
  if (!data) return {*this, v, deferred_.promise(v, p.spec())};
  return {*this, v, data};
}

const Spec& Operand::spec() const {
  if (var) return (void)var->tape(), var->spec();
  return parameter->spec();
}

Tape& tape_of(const char* op, std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.var) return operand.var->tape();
  }
  fail(ErrorKind::invalid, op, ": of its operands none is a value of a tape, so it does not know ",
       "on which tape to be; give it tape.input(parameter)");
}

std::string in_words(std::span<const Operand> operands) {
  std::string list;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i > 0) list += i + 1 < operands.size() ? ", " : " and ";
    list += sentence(operands[i].spec());
  }
  return list;
}

bool Tape::needs_grad(const Operand& operand) const {
  if (!options_.recording) return false;
  if (operand.parameter) return operand.parameter->trainable;
  return program_.values[id_of(*operand.var)].needs_grad;
}

ValueId Tape::id_of(const Var& v) const {
  check(&v.tape() == this, "a value of another tape was used; an op cannot be on two tapes");
  return v.id();
}

ValueId Tape::resolve(const Operand& operand) {
  if (operand.var) return id_of(*operand.var);
  Parameter* p = operand.parameter;
  check(p->data || p->home || !options_.runs, "parameter ", p->name, " has no data");
  if (p->data) check_stream(p->data, p->name.c_str());
  check(!needs_grad(operand) || !is_only_stored(p->spec().dtype), "parameter ", p->name, ", ",
        p->spec(),
        ", is of a type that is only stored, and cannot be trained; convert it first "
        "(Cast), or set trainable to false");
  const auto [at, fresh] = parameters_.try_emplace(p);
  if (fresh) {
    at->second = program_.values.add({.spec = p->spec(),
                                      .parameter = p,
                                      .trains = p,
                                      .number = p->number ? static_cast<int32_t>(*p->number) : -1,
                                      .needs_grad = needs_grad(operand)});
  }
  return at->second;
}

// The state of the tape before an op, to go back to if the op fails.
struct Tape::Before {
  ValueId next_value;
  Regions::Before regions;
  Survey::Mark surveyed;
  size_t deferred;
};

// Sets a flag during its lifetime.
struct Tape::Applying {
  bool& flag;
  explicit Applying(bool& f) : flag(f) { flag = true; }
  ~Applying() { flag = false; }
  Applying(const Applying&) = delete;
  Applying& operator=(const Applying&) = delete;
};

Few<Var> Tape::apply(std::shared_ptr<const Op> op, std::span<const Operand> operands) {
  check(!backward_began_, op->name(),
        ": backward has begun on this tape; a new step needs a new tape");
  check_not_applying(op->name());
  const Applying applying(applying_);
  Before before{.next_value = program_.values.next_id(),
                .regions = regions_.before(),
                .surveyed = options_.survey ? options_.survey->mark() : Survey::Mark{},
                .deferred = deferred_.mark()};
  const NodeId next = program_.nodes.next_id();
  const NodeId id = program_.nodes.add(
      {.op = std::move(op), .chunks = std::max(options_.plan.chunks.value_or(next, 1), 1)});
  gradients_.begin_op();
  try {
    if (homes_) homes_->before_forward(id);
    const Few<Tensor> in = add_inputs(id, operands);
    add_outputs(id);
    check_fingerprint(options_.plan, program_, id);
    if (!options_.runs) return promise(id);
    regions_.open_at(id);
    const RegionId chunked = regions_.open_chunked();
    return chunked < 0 ? run(id, in) : defer(id, chunked, in);
  } catch (...) {
    restore(before);
    throw;
  }
}

Few<Tensor> Tape::add_inputs(NodeId id, std::span<const Operand> operands) {
  Few<Tensor> in;
  for (const Operand& operand : operands) {
    const ValueId v = resolve(operand);
    in.push_back(operand.var ? operand.var->tensor_if_computed()
                             : data_on_device(*operand.parameter));
    if (!in[in.size() - 1] && options_.runs) check_readable(id, v);
    program_.nodes[id].inputs.push_back(v);
  }
  return in;
}

namespace {

void check_computable(const Op& op, const Specs& inputs) {
  if (op.reads_stored_types()) return;
  for (size_t k = 0; k < inputs.size(); ++k) {
    check(!is_only_stored(inputs[k].dtype), op.name(), ": input ", k, ", ", inputs[k],
          ", is of a type that is only stored; convert it first (Cast), to f32 or bf16");
  }
}

void check_gradient_type(const Op& op, const Spec& output) {
  check(
      !is_only_stored(output.dtype), op.name(), ": its output, ", output,
      ", is of a type that is only stored, and cannot have a gradient; say so in differentiable()");
}

}  // namespace

void Tape::add_outputs(NodeId id) {
  Node& n = program_.nodes[id];
  const Needs needs = program_.needs(id);
  Specs specs;
  for (const ValueId v : n.inputs) specs.push_back(program_.values[v].spec);
  check_computable(*n.op, specs);
  const int64_t max_parts = n.op->max_parts(specs);
  const bool has_parts = max_parts > 1;  // of one launch, which writes its gradient once
  if (n.chunks > 1) {
    const int64_t max = std::max(n.op->max_chunks(specs), max_parts);
    check(n.chunks <= max || options_.chunk || has_parts, "plan: ", n.chunks, " chunks for node ",
          id, " (", n.op->name(), "), which can be cut into at most ", max);
    n.chunks = static_cast<int>(std::min<int64_t>(n.chunks, max));
  }
  const Specs outputs = n.op->infer(specs);
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    if (needs[static_cast<int>(k)]) gradients_.expect(n.inputs[k], has_parts ? 1 : n.chunks);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const bool has_grad = needs.any() && n.op->differentiable(static_cast<int>(k));
    if (has_grad) check_gradient_type(*n.op, outputs[k]);
    n.outputs.push_back(program_.values.add(
        {.spec = outputs[k], .producer = id, .trains = n.op->gathers(), .needs_grad = has_grad}));
  }
}

Few<Var> Tape::run(NodeId id, const Few<Tensor>& in) {
  const SurveyScope surveyed(options_.survey, stream_, Phase::forward, id, *program_.nodes[id].op);
  if (options_.offloader) options_.offloader->before_forward(id);
  const Few<Tensor> out = runner_.forward(id, in);
  if (options_.recording) regions_.save(id, in, out);
  regions_.close_at(id);
  Few<Var> vars;
  for (size_t i = 0; i < out.size(); ++i) {
    vars.push_back({*this, program_.nodes[id].outputs[i], out[i]});
  }
  return vars;
}

// Of a tape that does not run: the outputs have specs alone.
Few<Var> Tape::promise(NodeId id) {
  Few<Var> vars;
  for (const ValueId v : program_.nodes[id].outputs) {
    vars.push_back({*this, v, deferred_.promise(v, program_.values[v].spec)});
  }
  return vars;
}

// Removes the last node, which has failed.
void Tape::restore(const Before& before) {
  gradients_.undo_op();
  if (options_.survey) options_.survey->undo(before.surveyed);
  program_.nodes.pop_back();
  std::erase_if(parameters_, [&](const auto& known) { return known.second >= before.next_value; });
  program_.values.resize(static_cast<size_t>(before.next_value));
  gradients_.forget_from(before.next_value);
  saving_.forget_from(before.next_value);
  regions_.restore(before.regions, before.next_value);
  deferred_.restore(before.deferred, before.next_value);
}

void Tape::enter_scope(const ScopeOptions& options) {
  check_not_applying(options.name.c_str());
  // All of a region in chunks is recomputed anyway.
  const bool opens_region =
      options.recompute && options_.recording && options_.runs && regions_.open_chunked() < 0;
  const NodeId next = program_.nodes.next_id();
  const ScopeId parent = program_.open_scopes.empty() ? -1 : program_.open_scopes.back();
  program_.open_scopes.push_back(
      program_.scopes.add({.options = options,
                           .first = next,
                           .parent = parent,
                           .region = opens_region ? regions_.open_by_hand() : -1}));
}

void Tape::leave_scope() {
  const ScopeId id = program_.open_scopes.back();
  TapeScope& scope = program_.scopes[id];
  program_.open_scopes.pop_back();
  scope.last = program_.nodes.next_id() - 1;
  if (scope.region < 0) return;
  scope.frees_nothing = !regions_.recomputes_within(scope.region);
  if (scope.frees_nothing && idle_checkpoint_ < 0) idle_checkpoint_ = id;
  regions_.close_by_hand(scope.region);
}

}  // namespace spool
