#include "spool/autograd/sharding/sharded_model.h"

#include <algorithm>
#include <bit>
#include <map>

#include "spool/autograd/fingerprint.h"
#include "spool/autograd/sharding/parameter_part.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

class Declaring {
 public:
  explicit Declaring(Stream& stream) : stream_(stream) { stream.declare_parameters(true); }
  ~Declaring() { stream_.declare_parameters(false); }
  Declaring(const Declaring&) = delete;
  Declaring& operator=(const Declaring&) = delete;

 private:
  Stream& stream_;
};

// Parameters as the model declares them, while its ops are recorded.
class AsDeclared {
 public:
  explicit AsDeclared(const Parameters& parameters) : parameters_(parameters) {
    for (Parameter* p : parameters_) {
      parts_.push_back({std::move(p->data), std::move(p->part)});
      if (!parts_.back().part) p->data = parts_.back().data;
    }
  }
  ~AsDeclared() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      parameters_[i]->data = std::move(parts_[i].data);
      parameters_[i]->part = std::move(parts_[i].part);
    }
  }
  AsDeclared(const AsDeclared&) = delete;
  AsDeclared& operator=(const AsDeclared&) = delete;

  const ParameterPart* part_of(const Parameter* p) const {
    const auto at = std::ranges::find(parameters_.all(), p) - parameters_.begin();
    return at < std::ssize(parts_) ? parts_[static_cast<size_t>(at)].part.get() : nullptr;
  }

 private:
  struct Part {
    Tensor data;
    std::shared_ptr<ParameterPart> part;
  };
  const Parameters& parameters_;
  std::vector<Part> parts_ = {};
};

RecordedLoss recorded_of(const Parameters& parameters, const std::function<Var(Tape&)>& apply,
                         TapeOptions options, Stream& stream) {
  RecordedLoss recorded;
  const AsDeclared declared(parameters);
  options.runs = false;
  Tape tape(stream, std::move(options));
  recorded.loss = apply(tape).id();
  for (ValueId v = 0; v < tape.values().next_id(); ++v) {
    const Value& value = tape.values()[v];
    if (value.producer >= 0) continue;
    if (!value.parameter) {
      recorded.inputs.push_back(tape.given(v));
    } else if (const ParameterPart* const part = declared.part_of(value.parameter)) {
      recorded.stored[v] = part->stored();
    }
  }
  recorded.program = tape.take_program();
  return recorded;
}

// In the order of its values.
std::vector<const Parameter*> parameters_of(const Program& program) {
  std::vector<const Parameter*> all;
  for (const Value& v : program.values) {
    if (v.parameter) all.push_back(v.parameter);
  }
  return all;
}

}  // namespace

std::unique_ptr<StepModel> make_declared(const ShardedModel::Make& make, Stream& stream) {
  const Declaring declaring(stream);
  return make(stream);
}

RecordedLoss record_loss(StepModel& model, Stream& stream) {
  return recorded_of(
      model.parameters(), [&](Tape& tape) { return model.loss(tape); }, {.backward_follows = true},
      stream);
}

ShardedPass::ShardedPass(RecordedLoss recorded, Assignment how, const MeshRanks& ranks) {
  how.results[recorded.loss] = {};  // whole on all ranks
  if (how.links.empty()) how.links.resize(ranks.mesh().size());
  program_ = shard(recorded.program, how, ranks, link_price(ranks.mesh(), how.links));
  wanted_ = {program_.results.at(recorded.loss)};
  inputs_ = std::move(recorded.inputs);
  for (const ShardParameter& p : program_.parameters) parameters_.push_back(p.whole);
}

Var ShardedPass::apply(Tape& tape, const RecordedLoss& other) {
  for (ShardNode& node : program_.nodes) {
    if (node.is_move) continue;
    const Specs outputs = node.op->infer({});  // of a part, whatever its inputs
    node.op = std::make_shared<const PartOfOp>(other.program.nodes[node.whole].op, outputs,
                                               *node.op->place());
  }
  return apply(tape, other.inputs);
}

Var ShardedPass::apply(Tape& tape, const std::vector<Tensor>& given) const {
  std::vector<Var> inputs;
  for (const Tensor& t : given) inputs.push_back(tape.input(t));
  return spool::apply(program_, tape, parameters_, inputs, wanted_).front();
}

ShardedModel::ShardedModel(const Make& make, Choose choose, const MeshAxes& mesh, Stream& stream,
                           bool in_flat_parts)
    : ranks_(mesh, stream),
      model_(make_declared(make, stream)),
      choose_(std::move(choose)),
      in_flat_parts_(in_flat_parts) {
  RecordedLoss recorded = record_loss(*model_, stream);
  if (stream.device().type != DeviceType::meta) {
    recorded_ = fingerprints(recorded.program);
    recorded_loss_ = recorded.loss;
    recorded_parameters_ = parameters_of(recorded.program);
  }
  Assignment how = this->choose(recorded);
  loss_ = std::make_unique<ShardedPass>(std::move(recorded), std::move(how), ranks_);
  std::map<const Parameter*, const ShardParameter*> parts;
  for (const ShardParameter& p : program().parameters) parts[p.whole] = &p;
  for (Parameter* p : model_->parameters()) divide(*p, parts[p]);
  model_->is_divided(*this);
}

Var ShardedModel::loss(Tape& tape) {
  Stream& stream = model_->parameters().stream();
  const bool runs = stream.device().type != DeviceType::meta;
  if (++times_ > 1 && runs && std::has_single_bit(times_)) {
    check_is_as_recorded(record_loss(*model_, stream));
  }
  return loss_->apply(tape);
}

void ShardedModel::check_is_as_recorded(const RecordedLoss& now) const {
  constexpr const char* once =
      "; ranks that share micro-batches, or store parameters in parts, record it once: ";
  const auto prints = fingerprints(now.program);
  const NodeId nodes = std::min(prints.next_id(), recorded_.next_id());
  NodeId first = 0;
  while (first < nodes && prints[first] == recorded_[first]) ++first;
  if (first < nodes || prints.next_id() != recorded_.next_id() || now.loss != recorded_loss_) {
    fail(ErrorKind::invalid, "the loss differs from what was recorded at first, from its node ",
         first,
         first < prints.next_id() ? sentence(" (", now.program.nodes[first].op->name(), ")") : "",
         " on", once, "let it be the same in every step");
  }
  const std::vector<const Parameter*> parameters = parameters_of(now.program);
  for (size_t i = 0; i < parameters.size(); ++i) {
    check(i < recorded_parameters_.size() && parameters[i] == recorded_parameters_[i],
          "the loss reads the parameter ", parameters[i]->name,
          " where it read another one when it was recorded at first", once,
          "let it read the same in every step");
  }
  check(now.inputs.size() == loss_->inputs().size(), "the loss has ", now.inputs.size(),
        " inputs, and had ", loss_->inputs().size(), " when it was recorded at first", once,
        "let it have the same in every step");
  for (size_t i = 0; i < now.inputs.size(); ++i) {
    const Tensor &before = loss_->inputs()[i], &input = now.inputs[i];
    check(input.view().data() == before.view().data(), "input ", i, " of the loss, ",
          input.view().spec(), ", is another tensor than when it was recorded at first", once,
          "make its inputs once, and write each batch to them");
  }
}

Assignment ShardedModel::choose(const RecordedLoss& recorded) const {
  Assignment how = choose_(recorded);
  how.in_flat_parts = in_flat_parts_;
  return how;
}

RecordedLoss ShardedModel::record(const std::function<Var(Tape&)>& apply,
                                  TapeOptions options) const {
  const Parameters& parameters = model_->parameters();
  return recorded_of(parameters, apply, std::move(options), parameters.stream());
}

std::unique_ptr<ShardedPass> ShardedModel::pass(RecordedLoss recorded, Assignment how) const {
  return std::make_unique<ShardedPass>(std::move(recorded), std::move(how), ranks_);
}

// A parameter that the loss does not use is whole.
void ShardedModel::divide(Parameter& p, const ShardParameter* part) {
  Stream& stream = model_->parameters().stream();
  if (!part && p.data) return;
  if (part) {
    std::optional<ParameterPart::Flat> flat;
    if (part->flat) flat = {*part->flat, ranks_.replicas().coordinate()};
    p.part = std::make_shared<ParameterPart>(part->value, part->stored, ranks_.mesh(),
                                             ranks_.rank(), flat);
    if (p.data && !p.part->is_cut()) return;
  }
  const Tensor given = std::move(p.data);
  p.data =
      Tensor(part ? p.part->own() : p.declared, stream, {.name = p.name, .purpose = p.purpose()});
  if (part && part->flat) launch(Fill{.out = p.data}, stream);  // the room at its end
  if (given) p.part->copy_from(given, {0, given.numel()}, p.data, stream);
}

}  // namespace spool
