#include "tests/autograd/mixture_testing.h"

#include <algorithm>

#include "tests/autograd/plan_testing.h"

namespace spool::testing {
namespace {

// Draws what is opened by hand around the nodes of a program, and a plan that goes with it.
class MixtureDrawing {
 public:
  MixtureDrawing(const Program& program, const MixtureOptions& options, Random& random)
      : program_(program),
        options_(options),
        random_(random),
        recomputable_(program.recomputable_nodes()) {}

  std::vector<Nest> draw_nests(NodeId first, NodeId last, int depth) {
    std::vector<Nest> all;
    while (first <= last) {
      const auto begin = static_cast<NodeId>(first + below(4));
      const NodeId end = std::min(static_cast<NodeId>(begin + below(9)), last);
      if (begin > last) break;
      all.push_back(draw_nest(begin, end));
      if (depth < 3) all.back().inside = draw_nests(begin, end, depth + 1);
      first = end + 1;
    }
    return all;
  }

  Plan draw_plan(const std::vector<Nest>& nests) {
    Plan plan = random_plan(program_.tape->program(), random_);
    std::erase_if(plan.regions, [&](const Region& r) { return !fits(r, nests); });
    for (Offload& how : plan.offloads) {
      if (options_.disk && one_in(2)) how.target = OffloadTarget::disk;
    }
    if (!options_.tokens_move) keep_tokens(plan);
    if (options_.plan_offloads) plan.placement[embedded()] = Placement::offload;
    for (const Node& n : program_.tape->nodes()) {
      const bool is_loss = std::string_view(n.op->name()) == "linear_cross_entropy";
      plan.chunks.push_back(is_loss ? 1 + static_cast<int>(below(3)) : 1);
    }
    return plan;
  }

 private:
  uint32_t below(uint32_t n) { return random_.next() % n; }
  bool one_in(uint32_t n) { return below(n) == 0; }

  Nest draw_nest(NodeId first, NodeId last) {
    constexpr Nest::Kind kinds[] = {Nest::checkpoint,     Nest::checkpoint,     Nest::scope,
                                    Nest::offload_inputs, Nest::offload_inside, Nest::hooks,
                                    Nest::hooks};
    Nest nest{.first = first, .last = last, .kind = kinds[below(std::size(kinds))]};
    if (nest.kind == Nest::checkpoint && last >= recomputable_) nest.kind = Nest::scope;
    if (nest.kind == Nest::offload_inputs && !options_.tokens_move) nest.kind = Nest::scope;
    const uint32_t hooks = !options_.hooks_offload ? 3 : options_.disk ? 5 : 4;
    nest.hook = static_cast<HookKind>(below(hooks));
    return nest;
  }

  // The value that the first node computes.
  ValueId embedded() const { return program_.tape->nodes()[0].outputs[0]; }

  void keep_tokens(Plan& plan) const {
    const auto is_kept = [&](ValueId v) {
      const Value& value = program_.tape->values()[v];
      return value.producer < 0 && value.spec.dtype == DType::i32;
    };
    for (ValueId v = 0; v < plan.placement.next_id(); ++v) {
      if (is_kept(v)) plan.placement[v] = Placement::keep;
    }
    std::erase_if(plan.offloads, [&](const Offload& how) { return is_kept(how.value); });
  }

  // A region and a checkpoint nest or are disjoint, and a region that has a checkpoint in it ends
  // after it.
  static bool fits(const Region& r, const std::vector<Nest>& nests) {
    return std::ranges::all_of(nests, [&](const Nest& n) {
      const bool disjoint = r.last < n.first || n.last < r.first;
      const bool within = n.first <= r.first && r.last <= n.last;
      const bool around = r.first < n.first && n.last < r.last;
      const bool nested = n.kind != Nest::checkpoint || disjoint || within || around;
      return nested && fits(r, n.inside);
    });
  }

  const Program& program_;
  const MixtureOptions& options_;
  Random& random_;
  NodeId recomputable_;
};

void append_bytes(Bytes& to, const Tensor& from) {
  const size_t begin = to.size();
  to.resize(begin + from.nbytes());
  read_bytes(from, 0, std::span(to).subspan(begin));
}

ScopeOptions options_of(Nest::Kind kind) {
  return {.name = "nest",
          .offload_inputs = kind == Nest::offload_inputs,
          .offload_inside = kind == Nest::offload_inside};
}

}  // namespace

Mixture::Mixture(uint64_t seed, const MixtureOptions& how) : Mixture(Random(seed), how) {}

Mixture::Mixture(Random random, const MixtureOptions& how)
    : options(how), program(random, {.ops = how.ops, .backward_follows = how.backward_follows}) {
  MixtureDrawing drawing(program, options, random);
  const NodeId last = program.tape->nodes().next_id() - 1;
  if (random.next() % 4 != 0) nests = drawing.draw_nests(0, last, /*depth=*/0);
  plan = drawing.draw_plan(nests);
  micro_batches =
      1 + static_cast<int>(random.next() % static_cast<uint32_t>(how.max_micro_batches));
  keeps_vars = random.next() % 4 == 0;
}

Plan Mixture::kept() const {
  Plan kept{.chunks = plan.chunks};
  std::ranges::copy_if(plan.regions, std::back_inserter(kept.regions),
                       [](const Region& r) { return r.chunks > 1; });
  return kept;
}

Enactment::Enactment(const Mixture& mixture, bool with_nests, Faults& faults, Offloader* offloader,
                     Parameters& parameters)
    : mixture_(mixture),
      with_nests_(with_nests),
      faults_(faults),
      offloader_(offloader),
      parameters_(parameters),
      last_use_(mixture.program.tape->values().size(), -1) {
  const auto& nodes = mixture.program.tape->nodes();
  for (NodeId id = 0; id < nodes.next_id(); ++id) {
    for (const ValueId v : nodes[id].inputs) last_use_[static_cast<size_t>(v)] = id;
  }
}

Var Enactment::run(Tape& tape, const std::vector<Tensor>& inputs) {
  const Program& program = mixture_.program;
  tape_ = &tape;
  vars_.assign(program.tape->values().size(), {});
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool needs_grad = i + 1 == inputs.size() && program.input_needs_grad;
    vars_[i] = tape.input(inputs[i], needs_grad);
  }
  input_ = vars_[inputs.size() - 1];
  const NodeId last = program.tape->nodes().next_id() - 1;
  enact(0, last, with_nests_ ? mixture_.nests : std::vector<Nest>());
  const Var loss = vars_[static_cast<size_t>(program.loss)];
  if (!mixture_.keeps_vars) drop_vars();
  return loss;
}

void Enactment::drop_vars() { vars_.clear(); }

void Enactment::enact(NodeId first, NodeId last, const std::vector<Nest>& nests) {
  auto next = nests.begin();
  for (NodeId id = first; id <= last;) {
    if (next != nests.end() && next->first == id) {
      enter(*next);
      id = (next++)->last + 1;
    } else {
      apply(id++);
    }
  }
}

void Enactment::enter(const Nest& nest) {
  const auto body = [&] { enact(nest.first, nest.last, nest.inside); };
  if (nest.kind == Nest::checkpoint) return checkpoint(*tape_, body);
  if (nest.kind != Nest::hooks) return segment(*tape_, options_of(nest.kind), body);
  WatchedHooks hooks(nest.hook, faults_, offloader_);
  const Tape::HooksScope scope(*tape_, hooks);
  body();
}

void Enactment::apply(NodeId id) {
  const Program& program = mixture_.program;
  const Node& node = program.tape->nodes()[id];
  std::vector<Operand> operands;
  for (const ValueId v : node.inputs) {
    Parameter* const parameter = program.tape->values()[v].parameter;
    operands.push_back(parameter ? Operand(*parameters_[program.index_of(parameter)])
                                 : Operand(vars_[static_cast<size_t>(v)]));
  }
  const Few<Var> outputs = apply_again_if_it_fails(node, operands);
  for (size_t i = 0; i < outputs.size(); ++i) {
    vars_[static_cast<size_t>(node.outputs[i])] = outputs[i];
  }
  if (mixture_.keeps_vars) return;
  const auto drop_if_last = [&](ValueId v) {
    const bool read_later = last_use_[static_cast<size_t>(v)] > id || v == program.loss;
    if (!read_later) vars_[static_cast<size_t>(v)] = {};
  };
  std::ranges::for_each(node.inputs, drop_if_last);
  std::ranges::for_each(node.outputs, drop_if_last);
}

Few<Var> Enactment::apply_again_if_it_fails(const Node& node,
                                            const std::vector<Operand>& operands) {
  const auto once = [&] { return tape_->apply(watched(*node.op, faults_), operands); };
  // An op that cannot be recomputed may have added to gradients that existed.
  if (!mixture_.options.applies_again || !node.op->recomputable()) return once();
  try {
    return once();
  } catch (const InjectedFailure&) {
    return once();
  }
}

void add_parameters(Parameters& all, const Program& program) {
  for (const Parameter& p : program.parameters) {
    const size_t number = all.size();
    const Tensor values = normal(p.data.shape(), DType::f32, all.stream(), 100 + number, 0.5);
    all.add("weight." + std::to_string(number), values).trainable = p.trainable;
  }
}

std::vector<Tensor> make_inputs(const Program& program, Stream& stream) {
  std::vector<Tensor> all;
  for (const Tensor& like : program.inputs) all.emplace_back(like.spec(), stream);
  return all;
}

void write_inputs(const std::vector<Tensor>& inputs, int64_t micro) {
  Random random(/*seed=*/5, static_cast<uint64_t>(micro));
  for (const Tensor& t : inputs) {
    std::vector<int32_t> ids(static_cast<size_t>(t.numel()));
    std::vector<float> reals(ids.size());
    for (int32_t& id : ids) id = static_cast<int32_t>(random.next() % uint32_t{Program::V});
    for (float& x : reals) x = random.normal();
    t.dtype() == DType::i32 ? write<int32_t>(t, ids) : write<float>(t, reals);
  }
}

MixtureRun::MixtureRun(Mixture& mixture) : mixture_(mixture) {
  add_parameters(parameters_, mixture.program);
  mixture.program.at_place = [this](const char* place) { faults.pass(place); };
  for (int64_t micro = 0; micro < mixture.micro_batches; ++micro) {
    inputs_.push_back(make_inputs(mixture.program, stream));
    write_inputs(inputs_.back(), micro);
  }
  random_ = make_tensor<int32_t>({4}, std::vector<int32_t>{1, 2, 3, 4}, stream);
  const auto rows = static_cast<float>(Program::B * Program::T * mixture.micro_batches);
  loss_scale_ = make_tensor<float>({1}, std::vector<float>{1 / rows}, stream);
  live_before_ = stream.memory().live;
  connect(plenty, disk_bytes);
}

void MixtureRun::connect(size_t of_host, size_t of_disk) {
  offloader.reset();
  link = std::make_unique<HostLink>(stream, of_host);
  offloader = mixture_.options.disk ? std::make_unique<Offloader>(*link, directory_.path(), of_disk)
                                    : std::make_unique<Offloader>(*link);
}

Bytes MixtureRun::step(bool mixed) {
  live_after_forward_.clear();
  std::vector<Tensor> results;
  const auto drop_gradients = [&] {
    for (Parameter* p : parameters_) p->grad = {};
  };
  try {
    for (int64_t micro = 0; micro < mixture_.micro_batches; ++micro) {
      run_tape(mixed, micro, results);
    }
  } catch (...) {
    drop_gradients();
    throw;
  }
  for (const Parameter* p : parameters_) {
    if (p->grad) results.push_back(p->grad);
  }
  drop_gradients();
  Bytes bits;
  for (const Tensor& t : results) append_bytes(bits, t);
  return bits;
}

void MixtureRun::run_tape(bool mixed, int64_t micro, std::vector<Tensor>& results) {
  faults.in_backward = false;
  std::optional<Tape> tape(std::in_place, stream,
                           TapeOptions{.plan = mixed ? mixture_.plan : mixture_.kept(),
                                       .backward_follows = mixture_.options.backward_follows,
                                       .micro_batches = mixture_.micro_batches,
                                       .loss_scale = loss_scale_,
                                       .random = random_,
                                       .offloader = offloader.get()});
  Enactment enactment(mixture_, mixed, faults, offloader.get(), parameters_);
  Var loss = enactment.run(*tape, inputs_[static_cast<size_t>(micro)]);
  results.push_back(loss.tensor());
  for (const MemoryStats& m : {stream.memory(), link->memory(), offloader->disk()}) {
    live_after_forward_.push_back(m.live);
  }
  faults.in_backward = true;
  std::vector<bool> had_grad;
  for (const Parameter* p : parameters_) had_grad.push_back(bool(p->grad));
  try {
    tape->backward(loss);
  } catch (...) {
    loss = {};
    enactment.drop_vars();
    expect_tape_holds_nothing(tape);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      EXPECT_TRUE(had_grad[i] || !parameters_[i]->grad) << "a gradient that backward had begun";
    }
    throw;
  }
  if (mixture_.program.input_needs_grad) {
    if (const Tensor dx = tape->grad(enactment.input())) results.push_back(dx);
  }
  loss = {};
  enactment.drop_vars();
  expect_tape_holds_nothing(tape);
}

// Once backward has ended, or failed, what a tape saved is freed.
void MixtureRun::expect_tape_holds_nothing(std::optional<Tape>& tape) {
  EXPECT_EQ(link->memory().live, 0u);
  EXPECT_EQ(offloader->disk().live, 0u);
  const size_t live = stream.memory().live;
  tape.reset();
  EXPECT_EQ(stream.memory().live, live) << "the tape held memory after its backward";
}

void MixtureRun::expect_nothing_live() {
  EXPECT_EQ(stream.memory().live, live_before_);
  EXPECT_EQ(link->memory().live, 0u);
  EXPECT_EQ(offloader->disk().live, 0u);
}

}  // namespace spool::testing
