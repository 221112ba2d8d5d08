// runs: numbers
// AdamW without masters: stochastic rounding on the cpu, against the definition in its header.

#include "spool/models/optimizers/adamw.h"
#include "tests/kernels/adamw_testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{64} << 20;
constexpr float infinity = std::numeric_limits<float>::infinity();

Tensor weights(const std::vector<float>& all, Stream& stream) {
  const auto n = static_cast<int64_t>(all.size());
  const Tensor exact = make_tensor<float>({n}, all, stream);
  const Tensor rounded({Shape{n}, DType::bf16}, stream);
  launch(Cast{.out = rounded, .in = exact}, stream);
  return rounded;
}

Tensor equal_weights(float value, int64_t n, Stream& stream) {
  return weights(std::vector<float>(static_cast<size_t>(n), value), stream);
}

// The 16 bits that element i is rounded by.
uint32_t draw_of(uint32_t i) {
  const PhiloxCounter words = philox({11, 22}, {i / 2048 * 256 + i % 1024 / 4, 7, 33, 0xffffffff});
  return words[i % 4] >> (i / 1024 % 2 * 16) & 0xffff;
}

TEST(StochasticRounding, DrawsBitsAsDefined) {
  for (const int64_t n : {1, 3, 1023, 1025, 2047, 2049, 40001}) {
    CpuStream stream(plenty, 2);
    const Tensor w = normal({n}, DType::bf16, stream, 1);
    Numbers expected = values(w);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto exact = static_cast<float>(expected[i] - expected[i] * 0x1p-10);
      const auto bits = std::bit_cast<uint32_t>(exact) + draw_of(static_cast<uint32_t>(i));
      expected[i] = std::bit_cast<float>(bits & 0xffff0000);
    }
    EXPECT_EQ(ExactStep(w, stream).take(stream), expected) << n;
  }
}

// 1 - 2^-10 is a quarter of the way down to the next bf16, 1 - 2^-8.
TEST(StochasticRounding, IsUnbiased) {
  CpuStream stream(plenty, 2);
  constexpr int64_t n = 100000;
  for (const float sign : {1.0f, -1.0f}) {
    const ExactStep step(equal_weights(sign, n, stream), stream);
    int64_t down = 0;
    for (const double x : step.take(stream)) {
      ASSERT_TRUE(x == sign || x == sign * (1 - 0x1p-8)) << x;
      down += x != sign;
    }
    EXPECT_NEAR(static_cast<double>(down) / n, 0.25, 0.005);
  }
}

TEST(StochasticRounding, MovesWeightsByStepsTooSmallForBf16) {
  CpuStream stream(plenty, 2);
  ExactStep step(equal_weights(1, 20000, stream), stream);
  for (int32_t t = 0; t < 100; ++t) {
    step.set_random_state({11, 22, t, 0}, stream);
    launch(step.kernel(), stream);
  }
  double mean = 0;
  for (const double x : values(step.parameter)) mean += x / 20000;
  EXPECT_NEAR(mean, std::pow(1 - 0x1p-10, 100), 5e-4);
}

TEST(StochasticRounding, DependsOnSeedStepAndTensorOnly) {
  CpuStream stream(plenty, 2);
  ExactStep step(equal_weights(1, 5000, stream), stream);
  const Numbers first = step.take(stream);
  EXPECT_EQ(step.take(stream), first);
  const auto with = [&](const std::vector<int32_t>& state, uint32_t index) {
    step.set_random_state(state, stream);
    step.index = index;
    return step.take(stream);
  };
  EXPECT_EQ(with({11, 22, 33, 99}, 7), first) << "the micro-batch";
  EXPECT_NE(with({12, 22, 33, 44}, 7), first);
  EXPECT_NE(with({11, 23, 33, 44}, 7), first);
  EXPECT_NE(with({11, 22, 34, 44}, 7), first);
  EXPECT_NE(with({11, 22, 33, 44}, 8), first);
}

TEST(StochasticRounding, KeepsFiniteWeightsFinite) {
  CpuStream stream(plenty, 1);
  const float largest = std::bit_cast<float>(0x7f7f0000);
  const auto after = [&](float weight, float rate) {
    return ExactStep(equal_weights(weight, 1000, stream), stream, rate).take(stream);
  };
  const auto all = [](double value) { return Numbers(1000, value); };
  EXPECT_EQ(after(largest, -0x1p-10f), all(largest));
  EXPECT_EQ(after(-largest, -0x1p-10f), all(-largest));
  EXPECT_EQ(after(largest, -1), all(infinity));
  EXPECT_EQ(after(0, 0x1p-10f), all(0));
  for (const double x : after(std::numeric_limits<float>::quiet_NaN(), 0x1p-10f)) {
    EXPECT_TRUE(std::isnan(x));
  }
}

TEST(StochasticRounding, RefusesAStepWithoutRandomState) {
  CpuStream stream(plenty, 1);
  Parameter p{.name = "w", .data = normal({8, 8}, DType::bf16, stream, 1)};
  AdamWOptimizer optimizer({&p}, {.rounding = Rounding::stochastic}, stream);
  EXPECT_EQ(optimizer.state_rows().size(), 2u);  // no masters
  p.grad = normal({8, 8}, DType::bf16, stream, 2);
  expect_error(ErrorKind::invalid, {"random"}, [&] { optimizer.step(0.1); });
}

}  // namespace
}  // namespace spool::testing
