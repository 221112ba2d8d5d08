// Whatever a plan says of saved values, the numbers are those of keeping all, to the last bit, and
// the peaks are those foretold, to the last byte, though every queue is put off at random.

#include <cstdlib>

#include "op_samples.h"
#include "plan_testing.h"
#include "sample_run.h"
#include "spool/models/gpt2.h"

namespace spool::testing {
namespace {

const bool delayed = [] {
  ::setenv("SPOOL_CPU_DELAY", "100", 0);
  return true;
}();

void expect_as_kept(const PlannedStep& step, int count, uint64_t seed, Device device,
                    const std::function<Plan(Random&)>& draw) {
  const Architecture architecture = open_stream(device, Arena::granule, 2)->architecture();
  const StepOutcome kept = perform(step, {}, foretell(step, {}, architecture), device);
  for (int i = 0; i < count; ++i) {
    Random random(seed, static_cast<uint64_t>(i));
    const Plan plan = draw(random);
    const StepOutcome foretold = foretell(step, plan, architecture);
    const StepOutcome outcome = perform(step, plan, foretold, device);
    ASSERT_EQ(outcome.bits, kept.bits) << "mixture " << i;
    ASSERT_EQ(outcome.device_peak, foretold.device_peak) << "mixture " << i;
    ASSERT_EQ(outcome.host_peak, foretold.host_peak) << "mixture " << i;
  }
}

// --------------------------------------------------------------------------------- op samples

class EveryOp : public ::testing::TestWithParam<OpSample> {};
INSTANTIATE_TEST_SUITE_P(Op, EveryOp, ::testing::ValuesIn(op_samples()),
                         [](const auto& sample) { return sample.param.name; });

TEST_P(EveryOp, IsTheSameUnder200Mixtures) {
  const OpSample& sample = GetParam();
  const PlannedStep step = [&](Stream& stream, TapeOptions options) {
    SampleRun run(sample, stream,
                  {.dtype = DType::f32, .tape = std::move(options), .through_gelu = true});
    run.forward();
    std::vector<Tensor> left;
    for (const Var& y : run.outputs()) left.push_back(y.tensor());
    run.backward();
    for (const Tensor& t : run.gradient_tensors()) left.push_back(t);
    return stream.device().type == DeviceType::meta ? std::vector<Tensor>() : left;
  };
  MetaStream stream(Machine{});
  SampleRun run(sample, stream, {.dtype = DType::f32, .through_gelu = true});
  run.forward();
  expect_as_kept(step, 200, 1, {}, [&](Random& r) { return random_plan(run.tape(), r); });
}

// -------------------------------------------------------------------------------------- GPT-2

struct Gpt2Step {
  Gpt2Config config;
  int64_t B, T;
  float dropout;

  Var loss(Gpt2& model, Tape& tape, Stream& stream) const {
    std::vector<int32_t> ids(static_cast<size_t>(B * T));
    Random random(7);
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random.next() % static_cast<uint64_t>(config.vocabulary));
    }
    const Tensor tokens = make_tensor<int32_t>({B, T}, ids, stream);
    return model.loss(tape.input(tokens), tape.input(tokens), dropout);
  }
  Tensor random_state(Stream& stream) const {
    return make_tensor<int32_t>({4}, std::vector<int32_t>{1, 2, 3, 4}, stream);
  }
  std::vector<Tensor> operator()(Stream& stream, TapeOptions options) const {
    Gpt2 model(config, DType::f32, stream);
    model.initialise(3);
    options.random = random_state(stream);
    options.backward_follows = true;
    Tape tape(stream, std::move(options));
    const Var y = loss(model, tape, stream);
    std::vector<Tensor> left{y.tensor()};
    tape.backward(y);
    for (Parameter* p : model.parameters()) left.push_back(p->grad);
    return stream.device().type == DeviceType::meta ? std::vector<Tensor>() : left;
  }
  void expect_as_kept(int count, Device device = {}) const {
    MetaStream stream(Machine{});
    Gpt2 model(config, DType::f32, stream);
    Tape tape(stream, {.backward_follows = true, .random = random_state(stream)});
    loss(model, tape, stream);
    testing::expect_as_kept(*this, count, 2, device,
                            [&](Random& r) { return random_plan(tape, r); });
  }
};

constexpr Gpt2Config tiny{.layers = 3, .heads = 2, .channels = 32, .context = 24, .vocabulary = 99};

TEST(Gpt2Mixtures, TinyIsTheSameUnder200Mixtures) {
  Gpt2Step{tiny, /*B=*/2, /*T=*/24, /*dropout=*/0.1f}.expect_as_kept(200);
}

TEST(Gpt2Mixtures, SlowGpt2124MIsTheSameUnder20Mixtures) {
  const Gpt2Config config = *gpt2_preset("gpt2-124m");
  Gpt2Step{config, /*B=*/1, /*T=*/64, /*dropout=*/0.1f}.expect_as_kept(20);
}

}  // namespace
}  // namespace spool::testing
