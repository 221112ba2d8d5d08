#include "tests/autograd/homes/homes_testing.h"

#include <cstring>

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/environment.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{16} << 20;

// The identity, which tells where it runs.
struct ProbeOp final : Op {
  const HomesNet::Probe& probe;
  int block;
  ProbeOp(const HomesNet::Probe& p, int b) : probe(p), block(b) {}

  const char* name() const override { return "probe"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    if (probe) probe(block, /*in_backward=*/false);
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(Scale{.out = y, .a = x, .factor = 1});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override {
    if (probe) probe(block, /*in_backward=*/true);
    b.pass(/*input=*/0);
  }
};

std::string name_of(int block, const char* matrix) { return sentence(block, ".", matrix); }

// On meta there are no values to write.
Tensor input_of(int64_t micro, DType dtype, Stream& stream, uint64_t seed) {
  const Spec spec{{HomesNet::rows, HomesNet::channels}, dtype};
  if (stream.device().type == DeviceType::meta) return {spec, stream};
  return normal(spec.shape, dtype, stream, seed + static_cast<uint64_t>(micro));
}

Tensor targets_of(int64_t micro, Stream& stream) {
  const Tensor targets({Shape{HomesNet::rows}, DType::i32}, stream);
  std::vector<int32_t> all;
  for (int64_t i = 0; i < HomesNet::rows; ++i) {
    all.push_back(static_cast<int32_t>((5 * i + micro) % HomesNet::channels));
  }
  write<int32_t>(targets, all);
  return targets;
}

}  // namespace

Names HomesNet::names_of(const NetForm& form, int unit) {
  if (unit == 0) return {"in"};
  if (unit > form.blocks) return {"out"};
  return {name_of(unit - 1, "up"), name_of(unit - 1, "down")};
}

HomesNet::HomesNet(const NetForm& f, Stream& stream, const std::vector<bool>& away)
    : form(f), parameters(stream, f.dtype) {
  stream.declare_parameters(true);
  const auto add = [&](const std::string& name, const Shape& shape) {
    parameters.add(name, shape, spool::normal(0.2f));
  };
  add("in", {channels, channels});
  for (int b = 0; b < form.blocks; ++b) {
    parameters.train_added(b != form.frozen_block);
    add(name_of(b, "up"), {2 * channels, channels});
    add(name_of(b, "down"), {channels, 2 * channels});
    parameters.train_added(true);
  }
  if (!form.tied) add("out", {channels, channels});
  if (form.with_unused) add("unused", {channels});
  stream.declare_parameters(false);
  parameters.allocate_declared(away);
}

Var HomesNet::run(Tape& tape, int64_t micro) {
  Stream& stream = tape.stream();
  const auto p = [&](const std::string& name) -> Parameter& { return parameters.named(name); };
  Var h = linear(tape.input(input_of(micro, form.dtype, stream, /*seed=*/100)), p("in"));
  for (int b = 0; b < form.blocks; ++b) {
    const Tape::Scope scope(tape, {.name = "block"});
    const Var x = apply<ProbeOp>(tape, {h}, probe, b);
    h = add(x, linear(gelu(linear(x, p(name_of(b, "up")))), p(name_of(b, "down"))));
  }
  Parameter& last = p(form.tied ? "in" : "out");
  if (!form.with_loss) return linear(h, last);
  return linear_cross_entropy(scale(h, 0.5), last, tape.input(targets_of(micro, stream)));
}

Plan resident_plan(const NetForm& form) { return form.rest; }

Plan plan_of_units(const NetForm& form, int ahead) {
  Plan plan = form.rest;
  plan.optimizer_state = OptimizerState::streamed;
  std::vector<PlannedUnit>& units = plan.units;
  if (!form.tied) units.push_back({.first = 0, .last = 0, .parameters = {0}, .first_readers = {0}});
  for (int b = 0; b < form.blocks; ++b) {
    const NodeId first = HomesNet::first_of(b);
    const auto number = static_cast<uint32_t>(1 + 2 * b);
    units.push_back({.first = first,
                     .last = HomesNet::last_of(b),
                     .parameters = {number, number + 1},
                     .first_readers = {first + 1, first + 3}});
  }
  const NodeId end = HomesNet::first_of(form.blocks) + (form.with_loss ? 1 : 0);
  if (!form.tied) {
    units.push_back({.first = HomesNet::first_of(form.blocks),
                     .last = end,
                     .parameters = {static_cast<uint32_t>(1 + 2 * form.blocks)},
                     .first_readers = {end}});
  }
  const auto count = static_cast<int>(units.size());
  const auto at = [&](int i) -> PlannedUnit& { return units[static_cast<size_t>(i)]; };
  for (int i = 0; i < count; ++i) {
    at(i).parameters_away = true;
    at(i).gradients_away = i != form.frozen_block + (form.tied ? 0 : 1) || form.frozen_block < 0;
    at(i).forward_fetch = i < ahead ? 0 : at(i - ahead).first;
    at(i).backward_fetch = i + ahead >= count ? end + 1 : at(i + ahead).last;
    if (ahead == 0) at(i).forward_fetch = at(i).first, at(i).backward_fetch = at(i).last;
  }
  return plan;
}

HomesRun::HomesRun(const NetForm& form, const Plan& plan, Stream& on, int micro_batches)
    : stream(on),
      link(on, plenty),
      log(on.arena()),
      net(form, on, parameters_away(plan)),
      needs_values(on.device().type != DeviceType::meta),
      plan_(plan),
      micro_batches_(micro_batches),
      host_(link.open_host()) {
  if (uses_homes(plan)) {
    homes = std::make_unique<Homes>(net.parameters, link, plan, micro_batches);
  }
  net.parameters.initialise(/*seed=*/3);
  for (const Parameter* p : net.parameters) {
    const bool is_there = homes && homes->is_away(*p);
    state_.emplace_back(p->spec(), is_there ? *host_ : stream,
                        Label{.name = p->name, .purpose = Purpose::optimizer});
    launch(Fill{.out = state_.back()}, state_.back().stream());
  }
  host_->synchronize();
  stream.synchronize();
  if (homes) homes->set_user(this);
}

std::vector<View> HomesRun::state_on_host(const Parameter& p) const {
  const Tensor& state = state_[*p.number];
  return &state.stream() == &stream ? std::vector<View>() : std::vector<View>{state};
}

void HomesRun::update(const Parameter& p, const std::vector<Tensor>& fetched) {
  const Tensor& state = fetched.empty() ? state_[*p.number] : fetched.front();
  Tensor gradient = p.grad;
  if (gradient.dtype() != state.dtype()) {
    gradient = Tensor(state.spec(), stream);
    launch(Cast{.out = gradient, .in = p.grad}, stream);
  }
  launch(Add{.out = add_to(state), .a = gradient}, stream);
  launch(Add{.out = add_to(p.data), .a = state}, stream);
}

// On the device, wherever it is; absent if there is none.
Tensor HomesRun::gradient_of(const Parameter& p) const {
  const View there = homes ? homes->gradient(p) : View();
  if (!there) return p.grad;
  homes->synchronize();
  const Tensor copy(there.spec(), stream);
  stream.upload(copy.view().data(), there.data(), there.nbytes());
  return copy;
}

void HomesRun::update_rest() {
  const std::vector<Parameter*>& all = net.parameters;
  for (size_t i = 0; i < all.size(); ++i) {
    Parameter& p = *all[i];
    const Tensor gradient = gradient_of(p);
    if (!gradient) continue;
    const Tensor on_host = state_[i];
    const Tensor state(on_host.spec(), stream);
    stream.upload(state.view().data(), on_host.view().data(), state.nbytes());
    p.grad = gradient;
    net.parameters.with(i, [&] { update(p, {state}); });
    if (needs_values) {
      stream.download(on_host.view().data(), state.view().data(), state.nbytes());
    }
    p.grad = {};
    if (homes) homes->free_gradient(p);
  }
}

void HomesRun::run_tapes() {
  outputs_.clear();
  for (int64_t micro = 0; micro < micro_batches_; ++micro) {
    if (homes) homes->begin_micro_batch(micro == 0, micro + 1 == micro_batches_);
    Tape tape(stream, {.plan = plan_,
                       .backward_follows = true,
                       .micro_batches = micro_batches_,
                       .homes = homes.get(),
                       .sink = homes.get()});
    const Var y = net.run(tape, micro);
    if (needs_values) outputs_.push_back(values(y.tensor()));
    const Tensor dy = input_of(micro, net.form.dtype, stream, /*seed=*/200);
    tape.backward(net.form.with_loss ? std::vector<Root>{{y}} : std::vector<Root>{{y, dy}});
  }
}

std::vector<double> HomesRun::values_of(const Tensor& t) const {
  return t && needs_values ? values(t) : std::vector<double>();
}

StepBits HomesRun::step() {
  run_tapes();
  StepBits bits{.outputs = outputs_};
  const std::vector<Parameter*>& all = net.parameters;
  for (const Parameter* p : all) {
    // What is updated in backward has no gradient any more.
    bits.gradients.push_back(plan_.update == UpdateTime::end ? values_of(gradient_of(*p))
                                                             : std::vector<double>());
  }
  update_rest();
  if (homes) homes->synchronize();
  for (size_t i = 0; i < all.size(); ++i) {
    net.parameters.with(i, [&] { bits.parameters.push_back(values_of(all[i]->data)); });
    bits.state.push_back(values_of(state_[i]));
  }
  return bits;
}

Names HomesRun::on_device(Purpose purpose) const {
  Names names;
  for (const LoggedAllocation& a : log.history().all) {
    const bool is_live = a.death == LoggedAllocation::never;
    if (is_live && a.label.purpose == purpose) names.emplace(a.label.name.c_str());
  }
  return names;
}

int64_t HomesRun::allocated(Purpose purpose, const std::string& name) const {
  return std::ranges::count_if(log.history().all, [&](const LoggedAllocation& a) {
    return a.label.purpose == purpose && a.label.name == name.c_str();
  });
}

std::vector<StepBits> resident_steps(const NetForm& form, int micro_batches) {
  CpuStream stream(plenty, 2);
  HomesRun run(form, resident_plan(form), stream, micro_batches);
  return {run.step(), run.step()};
}

void expect_as_resident(const NetForm& form, const Plan& plan, int micro_batches) {
  std::vector<StepBits> wanted = resident_steps(form, micro_batches);
  const EnvironmentVariable delay("SPOOL_CPU_DELAY", "100");
  CpuStream stream(plenty, 2);
  HomesRun run(form, plan, stream, micro_batches);
  for (StepBits& of_step : wanted) {
    if (plan.update == UpdateTime::backward) {
      of_step.gradients.assign(of_step.gradients.size(), {});
    }
    const StepBits found = run.step();
    EXPECT_EQ(found.outputs, of_step.outputs);
    EXPECT_EQ(found.gradients, of_step.gradients);
    EXPECT_EQ(found.parameters, of_step.parameters);
    EXPECT_EQ(found.state, of_step.state);
  }
  MetaStream meta(Machine{.architecture = stream.architecture()});
  HomesRun foretold(form, plan, meta, micro_batches);
  for (int i = 0; i < 2; ++i) (void)foretold.step();
  EXPECT_EQ(stream.memory().peak, meta.memory().peak);
  EXPECT_EQ(run.link.memory().peak, foretold.link.memory().peak);
}

}  // namespace spool::testing
