// runs: numbers
// Nets written with ops.h alone: their gradients equal differences, and they are planned,
// recomputed, offloaded and run in chunks, at the foretold peak and with the same bits.

#include <cmath>

#include "spool/models/steps/step_planner.h"
#include "spool/models/steps/step_runner.h"
#include "tests/models/steps/nets_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class EveryNet : public ::testing::TestWithParam<NetKind> {};
INSTANTIATE_TEST_SUITE_P(Net, EveryNet, ::testing::ValuesIn(net_kinds));

// A net in f64, as a function of its parameters.
class Function {
 public:
  explicit Function(NetKind kind) : net_(make_net(kind, DType::f64, stream_)) {
    net_->initialise(1);
    net_->upload(0);
  }
  Parameters& parameters() { return net_->parameters(); }
  double loss() {
    Tape tape(stream_, {.recording = false});
    return item(net_->loss(tape));
  }
  void differentiate() {
    Tape tape(stream_);
    tape.backward(net_->loss(tape));
  }
  // The derivative by one element of a parameter: central differences of fourth order.
  double difference(const Parameter& p, size_t i) {
    constexpr double h = 2e-5;  // so that no relu is where its slope jumps
    const std::vector<double> before = read<double>(p.data);
    const auto at = [&](double by) {
      std::vector<double> moved = before;
      moved[i] += by;
      write<double>(p.data, moved);
      return loss();
    };
    const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    write<double>(p.data, before);
    return slope;
  }

 private:
  CpuStream stream_{size_t{64} << 20, 1};
  std::unique_ptr<SmallNet> net_;
};

TEST_P(EveryNet, GradientsAreThoseOfDifferences) {
  constexpr size_t max = 7;
  Function f(GetParam());
  f.differentiate();
  for (const Parameter* p : f.parameters()) {
    const std::vector<double> gradient = read<double>(p->grad);
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::fabs(g));
    EXPECT_GT(largest, 0) << p->name;
    for (size_t i = 0; i < gradient.size(); i += std::max<size_t>(1, gradient.size() / max)) {
      EXPECT_NEAR(gradient[i], f.difference(*p, i), 1e-8 * std::max(largest, 1e-2)) << p->name;
    }
  }
}

const StepPlace here{.device = {DeviceType::cpu}, .threads = 2, .machine = cpu_machine()};

StepDescription describe(NetKind kind) {
  return {.make_model = [kind](Stream& stream) { return make_net(kind, DType::f32, stream); },
          .config = {.accumulate = 2}};
}

std::vector<float> train(StepRunner& runner) {
  std::vector<float> numbers;
  while (runner.steps() < 3) {
    const StepResult result =
        runner.step(/*learning_rate=*/0.01, /*targets=*/24,
                    [&](int64_t micro) { runner.model<SmallNet>().upload(micro); });
    EXPECT_TRUE(result.finite);
    numbers.insert(numbers.end(), {result.loss, result.grad_norm});
  }
  return numbers;
}

void expect_as_foretold(StepRunner& runner, const std::vector<float>& numbers) {
  EXPECT_EQ(train(runner), numbers);
  EXPECT_EQ(runner.stream().memory().peak, runner.planned().foretold.memory.peak);
  EXPECT_EQ(runner.host_memory().peak, runner.planned().foretold.host.peak);
  EXPECT_EQ(runner.disk().peak, runner.planned().foretold.disk.peak);
}

TEST_P(EveryNet, EveryPolicyIsAsForetold) {
  const StepDescription net = describe(GetParam());
  StepRunner kept(net, {.policy = Policy{}}, here);
  const std::vector<float> numbers = train(kept);
  EXPECT_EQ(kept.stream().memory().peak, kept.planned().foretold.memory.peak);
  EXPECT_LT(numbers[4], numbers[0]) << "the loss does not fall";

  const TemporaryDirectory spill;
  std::vector<Policy> policies{{.norms = true},
                               {.activations = true},
                               {.attention = true},
                               {.block = true},
                               {.offload = Offloading::residual, .min_offload_bytes = 1},
                               {.offload = Offloading::all, .min_offload_bytes = 1}};
  policies.push_back(policies.back());
  policies.back().target = OffloadTarget::disk;
  policies.push_back({.block = true, .optimizer_state = OptimizerState::streamed});
  for (const Policy& policy : policies) {
    StepRunner runner(net, {.policy = policy, .spill_directory = spill.path()}, here);
    expect_as_foretold(runner, numbers);
  }
}

TEST_P(EveryNet, IsPlannedForABudget) {
  const StepDescription net = describe(GetParam());
  const Machine machine = cpu_machine();
  const size_t keeping = plan_steps(net, {.policy = Policy{}}, machine).foretold.memory.peak;
  const size_t min = StepPlanner({net}, {}, machine).smallest_budget();
  EXPECT_LT(min, keeping);
  for (const size_t budget : {min, (min + keeping) / 2}) {
    StepRunner runner(net, {.budget = budget}, here);
    train(runner);
    EXPECT_LE(runner.stream().memory().peak, budget);
    EXPECT_EQ(runner.stream().memory().peak, runner.planned().foretold.memory.peak);
  }
}

}  // namespace
}  // namespace spool::testing
