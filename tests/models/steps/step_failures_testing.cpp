#include "tests/models/steps/step_failures_testing.h"

namespace spool::testing {

MixedModel::MixedModel(Mixture& mixture, bool mixed, Stream& stream, Faults& faults)
    : mixture_(mixture),
      mixed_(mixed),
      faults_(faults),
      parameters_(stream),
      inputs_(make_inputs(mixture.program, stream)) {
  add_parameters(parameters_, mixture.program);
}

Var MixedModel::loss(Tape& tape) {
  faults_.in_backward = false;
  Enactment enactment(mixture_, mixed_, faults_, /*offloader=*/nullptr, parameters_);
  const Var loss = enactment.run(tape, inputs_);
  faults_.in_backward = true;
  return loss;
}

MixedSteps::MixedSteps(Mixture& mixture, bool mixed, OptimizerState state)
    : mixture_(mixture),
      model_(mixture, mixed, stream, faults),
      runner_(model_, config(), plans(mixed, state), stream) {
  runner_.optimizer().initialise();
  live_before_ = stream.memory().live;
  host_live_before_ = runner_.host_memory().live;
}

StepConfig MixedSteps::config() const { return {.accumulate = mixture_.micro_batches}; }

StepPlans MixedSteps::plans(bool mixed, OptimizerState state) const {
  StepPlans plans{.step = mixed ? mixture_.plan : mixture_.kept(),
                  .host_bytes = MixtureRun::plenty,
                  .disk_bytes = MixtureRun::disk_bytes,
                  .spill_directory = directory_.path()};
  plans.step.optimizer_state = state;
  return plans;
}

void MixedSteps::run(int64_t number) {
  const int64_t targets = Program::B * Program::T * mixture_.micro_batches;
  runner_.run({.number = number, .learning_rate = 0.01, .targets = targets},
              [&](int64_t micro) { model_.upload(micro); });
}

Bytes MixedSteps::outcome() {
  const StepResult result = runner_.result();
  EXPECT_TRUE(result.finite);
  Bytes all = state_bytes(model_.parameters(), runner_.optimizer());
  for (const float x : {result.loss, result.grad_norm}) {
    const auto bytes = std::as_bytes(std::span(&x, 1));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

void MixedSteps::expect_nothing_live() {
  for (Parameter* p : model_.parameters()) p->grad = {};  // the next step does the same
  EXPECT_EQ(stream.memory().live, live_before_);
  EXPECT_EQ(runner_.host_memory().live, host_live_before_);
  EXPECT_EQ(runner_.disk().live, 0u);
}

void MixedSteps::expect_as_before_the_step() {
  expect_nothing_live();
  expect_free_memory_is_idle(stream, nullptr, [&] { runner_.optimizer().synchronize(); });
}

}  // namespace spool::testing
