// SGD on the cpu against its formula in f64.

#include "spool/kernels/sgd.h"

#include "tests/kernels/sgd_testing.h"

namespace spool::testing {
namespace {

// One step of the header's formulas, of one tensor.
void step(const Sgd& k, size_t tensor, const Numbers& grad, Numbers& w, Numbers& buffer) {
  const Sgd::Entry& t = k.tensors[tensor];
  const double lr = 0.1 * static_cast<double>(t.rate), decay = static_cast<double>(t.decay),
               momentum = static_cast<double>(k.momentum);
  for (size_t i = 0; i < w.size(); ++i) {
    const double g = 0.5 * grad[i] + decay * w[i];
    const double b = momentum * (buffer.empty() ? 0 : buffer[i]) + g;
    if (!buffer.empty()) buffer[i] = b;
    w[i] -= lr * (k.nesterov ? g + momentum * b : b);
  }
}

TEST(Sgd, TenStepsFollowTheFormula) {
  for (SgdCase c : sgd_cases()) {
    if (c.stochastic) continue;
    for (const int64_t n : {1, 17, 40001}) {
      SCOPED_TRACE(sentence(n, ", ", description(c)));
      c.numels = {5, n};  // the second decays, at half the rate
      CpuStream stream(64 << 20, 2);
      const SgdTensors tensors(c, stream);
      const Sgd k = tensors.kernel(1, 2);
      const auto of = [](const Tensor& x) { return x ? values(x) : Numbers(); };
      const SgdTensors::Each& t = tensors.at(1);
      Numbers w = of(t.master ? t.master : t.parameter), buffer = of(t.momentum);
      for (int i = 0; i < 10; ++i) {
        launch(k, stream);
        step(k, 0, of(t.grad), w, buffer);
      }
      EXPECT_LT(difference(of(t.parameter), w), tolerance(c.type));
      if (c.momentum != 0) {
        EXPECT_LT(difference(of(t.momentum), buffer), 1e-5);
      }
      if (!t.master) continue;
      EXPECT_LT(difference(of(t.master), w), 1e-5);
      Numbers rounded = of(t.master);
      for (double& x : rounded) x = static_cast<double>(float(bf16(static_cast<float>(x))));
      EXPECT_EQ(of(t.parameter), rounded);
    }
  }
}

// The bits are drawn as AdamW's are (stochastic_rounding_test.cpp): here only that they are.
TEST(Sgd, RoundsStochasticallyWithoutBias) {
  CpuStream stream(64 << 20, 2);
  constexpr int64_t n = 100000;
  const Tensor w({Shape{n}, DType::bf16}, stream), grad({Shape{n}, DType::bf16}, stream);
  launch(Fill{.out = w, .value = 1}, stream);
  launch(Fill{.out = grad, .value = 1}, stream);
  const Tensor schedule = make_tensor<float>({1}, std::vector<float>{0x1p-10f}, stream);
  const Tensor clip = make_tensor<float>({3}, std::vector<float>{1, 1, 1}, stream);
  const Tensor random = make_tensor<int32_t>({4}, std::vector<int32_t>{1, 2, 3, 4}, stream);
  launch(Sgd{.tensors = {{.parameter = w, .grad = grad}},
             .random = random,
             .schedule = schedule,
             .clip = clip},
         stream);
  int64_t down = 0;
  for (const double x : values(w)) {
    ASSERT_TRUE(x == 1 || x == 1 - 0x1p-8) << x;
    down += x != 1;
  }
  EXPECT_NEAR(static_cast<double>(down) / n, 0.25, 0.005);
}

TEST(Sgd, ChangesNothingIfTheGradientsAreNotFinite) {
  for (SgdCase c : sgd_cases()) {
    c.numels = {1000, 7};
    CpuStream stream(64 << 20, 2);
    const SgdTensors tensors(c, stream);
    const Numbers before = tensors.everything();
    launch(Fill{.out = tensors.clip()}, stream);
    launch(tensors.kernel(), stream);
    EXPECT_EQ(tensors.everything(), before) << description(c);
  }
}

TEST(Sgd, ManyTensorsTogetherOrInSlicesHaveTheBitsOfOneByOne) {
  constexpr int64_t granule = Sgd::granule;
  for (SgdCase c : sgd_cases()) {
    SCOPED_TRACE(description(c));
    c.numels = {1, 25 * granule + 5, granule, 3 * granule - 1};
    CpuStream stream(64 << 20, 2);
    const SgdTensors together(c, stream), apart(c, stream), sliced(c, stream);
    launch(together.kernel(), stream);
    for (size_t i = 0; i < c.numels.size(); ++i) launch(apart.kernel(i, i + 1), stream);
    launch(in_slices(sliced.kernel(), 2 * granule), stream);
    EXPECT_EQ(together.everything(), apart.everything());
    EXPECT_EQ(together.everything(), sliced.everything());
  }
}

TEST(Sgd, BitsDoNotDependOnTheNumberOfThreads) {
  for (SgdCase c : sgd_cases()) {
    c.numels = {100003, 17};
    expect_same_for_any_threads([&](Stream& stream) {
      const SgdTensors tensors(c, stream);
      launch(tensors.kernel(), stream);
      return tensors.everything();
    });
  }
}

TEST(Sgd, RefusesArgumentsThatDoNotFit) {
  CpuStream stream(1 << 20, 1);
  const auto make = [&](int64_t n) { return normal({n}, DType::f32, stream, 1); };
  const Tensor w = make(8), b = make(8), g = make(8), small = make(7), one = make(1),
               three = make(3);
  const auto kernel = [&](const Sgd::Entry& entry, float momentum, const Tensor& schedule) {
    return Sgd{.tensors = {entry}, .schedule = schedule, .clip = three, .momentum = momentum};
  };
  const auto refused = [&](std::string_view words, const Sgd& k) {
    expect_error(ErrorKind::invalid, {"sgd", words}, [&] { k.check_arguments(); });
  };
  const Sgd::Entry plain{.parameter = w, .grad = g},
      with_momentum{.parameter = w, .momentum = b, .grad = g};
  kernel(plain, 0, one).check_arguments();
  kernel(with_momentum, 0.9f, one).check_arguments();
  refused("schedule is f32 (3), and f32 (1) would fit", kernel(plain, 0, three));
  refused("must have a momentum buffer", kernel(plain, 0.9f, one));
  refused("must have no momentum buffer", kernel(with_momentum, 0, one));
  refused("gradient of a parameter is f32 (7)", kernel({.parameter = w, .grad = small}, 0, one));
  refused("state is f32 (7)", kernel({.parameter = w, .momentum = small, .grad = g}, 0.9f, one));
  refused("overlaps the memory of its gradient",
          kernel({.parameter = w, .momentum = g, .grad = g}, 0.9f, one));
}

}  // namespace
}  // namespace spool::testing
