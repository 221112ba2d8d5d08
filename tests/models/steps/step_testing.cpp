#include "tests/models/steps/step_testing.h"

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/offsets.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{4} << 20;

// The identity, which fails on demand.
struct Tripwire final : Op {
  CallCounter& calls;
  explicit Tripwire(CallCounter& c) : calls(c) {}

  const char* name() const override { return "tripwire"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    calls.count();
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(Scale{.out = y, .a = x, .factor = 1});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override {
    calls.count();
    b.pass(/*input=*/0);
  }
};

// The stream, which declares parameters alone from now on if some are away.
Stream& declaring(Stream& stream, const std::vector<bool>& away) {
  if (!away.empty()) stream.declare_parameters(true);
  return stream;
}

Var tripwire(const Var& x, CallCounter& calls) { return apply<Tripwire>(x.tape(), {x}, calls); }

}  // namespace

SmallModel::SmallModel(Stream& stream, CallCounter& calls, const std::vector<bool>& away)
    : calls_(calls),
      parameters_(declaring(stream, away)),
      up_(parameters_.add("up", {4 * channels, channels})),
      down_(parameters_.add("down", {classes, 4 * channels})),
      x_({Shape{rows, channels}}, stream, {.name = "x", .purpose = Purpose::input}),
      targets_({Shape{rows}, DType::i32}, stream, {.name = "targets", .purpose = Purpose::input}) {
  if (away.empty()) return;
  stream.declare_parameters(false);
  parameters_.allocate_declared(away);
}

void SmallModel::place_away(Plan& plan) {
  plan.optimizer_state = OptimizerState::streamed;
  plan.units = {{.first = 0,
                 .last = 4,
                 .parameters = {0},
                 .first_readers = {1},
                 .parameters_away = true,
                 .gradients_away = true,
                 .backward_fetch = 5},
                {.first = 5,
                 .last = 5,
                 .parameters = {1},
                 .first_readers = {5},
                 .parameters_away = true,
                 .gradients_away = true,
                 .backward_fetch = 6,
                 .stays = true,
                 .all_in_forward = true}};
}

Var SmallModel::loss(Tape& tape) {
  const Var h = tripwire(linear(tripwire(tape.input(x_), calls_), up_), calls_);
  return linear_cross_entropy(tripwire(gelu(h), calls_), down_, tape.input(targets_));
}

void SmallModel::upload_placeholder() {
  calls_.count();
  ++placeholders_;
  upload(0);
}

void SmallModel::upload(int64_t micro) {
  calls_.count();
  Random random(static_cast<uint64_t>(micro) + 7);
  std::vector<float> x(static_cast<size_t>(rows * channels));
  for (float& each : x) each = random.normal();
  std::vector<int32_t> targets(static_cast<size_t>(rows));
  for (int32_t& each : targets) each = static_cast<int32_t>(random.next() % classes);
  write<float>(x_, x);
  write<int32_t>(targets_, targets);
}

SmallRun::SmallRun(Stream& on, const StepConfig& config, const StepPlans& plans)
    : stream(on), model(on, calls, parameters_away(plans.step)), runner(model, config, plans, on) {
  initialise();
}

void SmallRun::initialise() {
  Parameters& parameters = model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = *parameters[i];
    Random random(i + 1);
    std::vector<float> weights(static_cast<size_t>(p.spec().shape.numel()));
    for (float& w : weights) w = 0.1f * random.normal();
    parameters.with(i, [&] { write<float>(p.data, weights); });
  }
  runner.optimizer().initialise();
}

bool SmallRun::is_half_updated() {
  try {
    (void)read_row(runner.optimizer(), 0, 0);
    return false;
  } catch (const Error& e) {
    EXPECT_TRUE(contains(e.what(), "an update failed")) << e.what();
    EXPECT_TRUE(contains(e.what(), "initialise()")) << e.what();
    return true;
  }
}

void SmallRun::step(int64_t number) {
  runner.run({.number = number, .learning_rate = 0.01, .targets = SmallModel::rows},
             [this](int64_t micro) { model.upload(micro); });
}

SmallRun::Results SmallRun::steps_from(int64_t first) {
  Results results;
  for (int64_t number = first; number < 3; ++number) {
    step(number);
    const StepResult r = runner.result();
    EXPECT_TRUE(r.finite);
    results.numbers.insert(results.numbers.end(), {r.loss, r.grad_norm});
  }
  results.state = state_bytes(model.parameters(), runner.optimizer());
  return results;
}

std::vector<StepForm> step_forms(const Architecture& architecture) {
  std::vector<StepForm> forms;
  for (const OptimizerState state : optimizer_states) {
    StepForm plain{.name = name(state)};
    plain.config.accumulate = state == OptimizerState::device ? 1 : 2;
    plain.plans.step.optimizer_state = state;
    plain.plans.host_bytes = plenty;
    forms.push_back(plain);
  }
  StepForm offloaded = forms[1], placed = forms[1];
  offloaded.name = "offloaded and recomputed";
  offloaded.config.accumulate = 3;
  for (size_t v = 0; v < SmallModel::values; ++v) {
    offloaded.plans.step.placement.push_back(v % 3 == 2 ? Placement::recompute
                                                        : Placement::offload);
  }
  placed.name = "placed";
  const auto make_model = [](Stream& stream) -> std::unique_ptr<StepModel> {
    static CallCounter calls;
    return std::make_unique<SmallModel>(stream, calls);
  };
  placed.plans.layout = assign_offsets(
      record_step({make_model, placed.config}, placed.plans, {.architecture = architecture}));
  StepForm kept = offloaded;
  kept.name = "offloaded, with state on the device";
  kept.plans.step.optimizer_state = OptimizerState::device;
  StepForm away = offloaded, updated = offloaded, placed_away = placed;
  away.name = "away, offloaded and recomputed";
  updated.name = "away, offloaded, recomputed and updated in backward";
  placed_away.name = "away and placed";
  for (StepForm* form : {&away, &updated, &placed_away}) SmallModel::place_away(form->plans.step);
  updated.config.optimizer = AdamWSettings{.clip = 0};
  updated.plans.step.update = UpdateTime::backward;
  placed_away.plans.layout.reset();
  placed_away.plans.layout = assign_offsets(record_step(
      {make_model, placed_away.config}, placed_away.plans, {.architecture = architecture}));
  forms.insert(forms.end(), {offloaded, kept, placed, away, updated, placed_away});
  return forms;
}

namespace {

// The live bytes of device, host and disk.
std::vector<size_t> live_bytes(const SmallRun& run) {
  return {run.stream.memory().live, run.runner.host_memory().live, run.runner.disk().live};
}

void expect_same_after_failure(SmallRun& run, const SmallRun::Results& wanted,
                               const std::vector<size_t>& live, bool is_updated_in_backward) {
  EXPECT_EQ(live_bytes(run), live);
  if (is_updated_in_backward && run.is_half_updated()) {
    expect_error(ErrorKind::invalid, {"an update failed", "initialise()"}, [&] { run.step(0); });
    EXPECT_EQ(live_bytes(run), live);
    run.initialise();
  }
  EXPECT_TRUE(run.steps_from(0) == wanted);
  EXPECT_EQ(live_bytes(run), live);
}

}  // namespace

void expect_no_trace_of_failed_steps(const StepForm& form, const OpenStream& open, int64_t stride) {
  SCOPED_TRACE(form.name);
  const bool in_backward = form.plans.step.update == UpdateTime::backward;
  const auto whole = open(plenty);
  SmallRun whole_run(*whole, form.config, form.plans);
  const std::vector<size_t> live = live_bytes(whole_run);
  const SmallRun::Results wanted = whole_run.steps_from(0);
  const size_t of_a_step = whole->memory().peak - live[0];

  bool failed = true;
  for (int64_t n = 0; failed; n += stride) {
    SCOPED_TRACE(sentence("call ", n));
    const auto stream = open(plenty);
    SmallRun run(*stream, form.config, form.plans);
    run.calls.fail_at(n);
    try {
      run.step(0);
      failed = false;
    } catch (const Error& e) {
      EXPECT_TRUE(contains(e.what(), "a call that is to fail")) << e.what();
    }
    run.calls.fail_at(-1);
    if (failed) expect_same_after_failure(run, wanted, live, in_backward);
  }
  const size_t parts = stride == 1 ? 16 : 3;
  for (size_t part = 0; part < parts; ++part) {
    const size_t left = of_a_step * part / parts;
    SCOPED_TRACE(sentence(left, " bytes are free"));
    const auto stream = open(plenty);
    SmallRun run(*stream, form.config, form.plans);
    {
      const auto taken = static_cast<int64_t>((plenty - stream->memory().live - left) / 4);
      const Tensor other({Shape{taken}}, *stream);
      expect_error(ErrorKind::memory, {"the arena needs"}, [&] { run.step(0); });
    }
    expect_same_after_failure(run, wanted, live, in_backward);
  }
}

}  // namespace spool::testing
