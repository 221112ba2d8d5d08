// The optimizer's kernels on the cpu: sums over all gradients, the clip factor, and the step.

#include "spool/kernels/adamw.h"

#include <numeric>

#include "spool/kernels/reduce.h"
#include "tests/kernels/adamw_testing.h"

namespace spool::testing {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

Tensor floats(const std::vector<float>& all, Stream& stream) {
  return make_tensor<float>({static_cast<int64_t>(all.size())}, all, stream);
}

TEST(Reduce, SumsInF64) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const int64_t n : {1, 5, 17, 1000, 200001}) {
      const Tensor x = normal({n}, t, stream, 1);
      const Tensor offset = unset({n}, t, stream);  // so that a sum is not all cancellation
      launch(Fill{.out = offset, .value = 1}, stream);
      launch(Add{.out = Grad(x, true), .a = offset}, stream);
      const Numbers all = values(x);
      const double sum = std::accumulate(all.begin(), all.end(), 0.0);
      double squares = 0;
      for (const double value : all) squares += value * value;
      expect_gradient({{1}, DType::f64}, stream, {squares},
                      [&](const Grad& out) { launch(SquaredNorm{.out = out, .x = {x}}, stream); });
      const Tensor by = normal({1}, accumulator(t), stream, 8);
      for (const DType to : {DType::f32, DType::f64}) {
        expect_gradient({{1}, to}, stream, {0.5 * sum}, [&](const Grad& out) {
          launch(SumAll{.out = out, .x = x, .factor = 0.5}, stream);
        });
        expect_gradient({{1}, to}, stream, {0.5 * values(by)[0] * sum}, [&](const Grad& out) {
          launch(SumAll{.out = out, .x = x, .factor = 0.5, .by = by}, stream);
        });
      }
    }
  }
}

TEST(Reduce, DoesNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Tensor x = normal({500003}, t, stream, 1), out = unset({1}, DType::f64, stream);
      launch(SumAll{.out = out, .x = x}, stream);
      launch(SquaredNorm{.out = Grad(out, true), .x = {x, x}}, stream);
      return values(out);
    });
  }
}

TEST(Reduce, TheNormOfManyTensorsIsOfAllTheirElements) {
  CpuStream stream(64 << 20, 2);
  const Tensor out = unset({1}, DType::f64, stream);
  SquaredNorm norm{.out = out};
  launch(norm, stream);
  EXPECT_EQ(values(out), Numbers{0});
  std::vector<Tensor> all;
  double squares = 0;
  while (!norm.x.full()) {
    const auto i = static_cast<int64_t>(all.size());
    all.push_back(normal({i % 7 * 20000 + 1}, floating[all.size() % 3], stream, all.size()));
    for (const double x : values(all.back())) squares += x * x;
    norm.x.add(all.back());
  }
  launch(norm, stream);
  EXPECT_LT(difference(values(out), {squares}), 1e-12);
  EXPECT_NE(error_of([&] { norm.x.add(all.front()); }), "");
}

TEST(ClipFactor, LimitsTheNorm) {
  CpuStream stream(1 << 20, 1);
  const auto clip_of = [&](double squared, float limit) {
    const Tensor clip = unset({3}, DType::f32, stream);
    const Tensor in = make_tensor<double>({1}, std::vector<double>{squared}, stream);
    launch(ClipFactor{.clip = clip, .squared = in, .limit = limit}, stream);
    return values(clip);
  };
  EXPECT_EQ(clip_of(16, 1), (Numbers{0.25, 4, 1}));
  EXPECT_EQ(clip_of(0.25, 1), (Numbers{1, 0.5, 1}));
  EXPECT_EQ(clip_of(0, 1), (Numbers{1, 0, 1}));
  EXPECT_EQ(clip_of(16, 0), (Numbers{1, 4, 1}));
  EXPECT_EQ(clip_of(infinity, 1)[2], 0);
  EXPECT_EQ(clip_of(std::nan(""), 1)[2], 0);
}

// Parameters with their state, and the same in f64.
struct Parameters {
  Tensor parameter, master, m, v;
  Numbers w, first, second;

  Parameters(int64_t n, DType t, Stream& stream)
      : parameter(normal({n}, t, stream, 1)),
        m(normal({n}, DType::f32, stream, 0, 0)),
        v(normal({n}, DType::f32, stream, 0, 0)),
        w(values(parameter)),
        first(w.size()),
        second(w.size()) {
    if (t == DType::f32) return;
    master = unset({n}, DType::f32, stream);
    launch(Cast{.out = master, .in = parameter}, stream);
  }
  AdamW kernel(const Tensor& grad, const Tensor& schedule, const Tensor& clip) const {
    return {.tensors = {{.parameter = parameter,
                         .master = master,
                         .m = m,
                         .v = v,
                         .grad = grad,
                         .decay = 0.1f}},
            .schedule = schedule,
            .clip = clip};
  }
  // Step t of the header's formulas.
  void step(const AdamW& k, const Numbers& grad, double factor, double lr, int t) {
    const double beta1 = k.beta1, beta2 = k.beta2, decay = k.tensors[0].decay;
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = factor * grad[i];
      first[i] = beta1 * first[i] + (1 - beta1) * g;
      second[i] = beta2 * second[i] + (1 - beta2) * g * g;
      const double upper = first[i] / (1 - std::pow(beta1, t));
      const double lower = std::sqrt(second[i] / (1 - std::pow(beta2, t))) + k.eps;
      w[i] -= lr * (upper / lower + decay * w[i]);
    }
  }
};

void take_ten_steps(int64_t n, DType t, DType gradient) {
  SCOPED_TRACE(sentence(n, ' ', name(t), ", gradients ", name(gradient)));
  CpuStream stream(64 << 20, 2);
  Parameters p(n, t, stream);
  const Tensor clip = floats({0.5f, 2, 1}, stream);
  for (int step = 1; step <= 10; ++step) {
    const double lr = 0.01 * step;
    const Tensor grad = normal({n}, gradient, stream, static_cast<uint64_t>(step));
    const Tensor schedule = floats(
        {static_cast<float>(lr), static_cast<float>(1 - std::pow(static_cast<double>(0.9f), step)),
         static_cast<float>(1 - std::pow(static_cast<double>(0.95f), step))},
        stream);
    const AdamW k = p.kernel(grad, schedule, clip);
    launch(k, stream);
    p.step(k, values(grad), 0.5, lr, step);
  }
  EXPECT_LT(difference(values(p.m), p.first), 1e-5);
  EXPECT_LT(difference(values(p.v), p.second), 1e-5);
  EXPECT_LT(difference(values(p.parameter), p.w), tolerance(t));
  if (t == DType::f32) return;
  EXPECT_LT(difference(values(p.master), p.w), 1e-5);
  Numbers rounded = values(p.master);
  for (double& x : rounded) x = bf16(static_cast<float>(x));
  EXPECT_EQ(values(p.parameter), rounded);
}

TEST(AdamW, TenStepsAreAsDefined) {
  for (const int64_t n : {1, 5, 17, 1000, 40001}) {
    take_ten_steps(n, DType::f32, DType::f32);
    take_ten_steps(n, DType::bf16, DType::bf16);
    take_ten_steps(n, DType::bf16, DType::f32);
  }
}

TEST(AdamW, NothingChangesWhereTheGradientsAreNotFinite) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : {DType::f32, DType::bf16}) {
    const Parameters p(1000, t, stream);
    const Tensor schedule = floats({0.1f, 0.1f, 0.05f}, stream);
    const auto all = [&] {
      Numbers numbers;
      for (const Tensor& state : {p.parameter, p.m, p.v}) append(numbers, state);
      if (p.master) append(numbers, p.master);
      return numbers;
    };
    const Numbers before = all();
    const Tensor grad = unset({1000}, t, stream);
    launch(p.kernel(grad, schedule, floats({0, infinity, 0}, stream)), stream);
    EXPECT_EQ(all(), before);
    launch(p.kernel(normal({1000}, t, stream, 2), schedule, floats({1, 1, 1}, stream)), stream);
    EXPECT_NE(all(), before);
  }
}

TEST(AdamW, RefusesTypesThatMakeNoStep) {
  CpuStream stream(1 << 20, 1);
  const Tensor narrow = normal({8}, DType::bf16, stream, 1),
               wide = normal({8}, DType::f32, stream, 1);
  const Tensor three = floats({1, 1, 1}, stream);
  stream.synchronize();  // others are to read them
  const auto refused = [&](const AdamW::Entry& entry, const View& random) {
    return error_of([&] {
      CpuStream own(1 << 20, 1);
      launch(AdamW{.tensors = {entry}, .random = random, .schedule = three, .clip = three}, own);
      own.synchronize();
    });
  };
  const auto entry = [&](const View& parameter, const View& master, const View& grad) {
    return AdamW::Entry{
        .parameter = parameter, .master = master, .m = wide, .v = wide, .grad = grad};
  };
  EXPECT_EQ(refused(entry(narrow, wide, narrow), {}), "");
  EXPECT_EQ(refused(entry(narrow, {}, wide), three), "");
  EXPECT_EQ(refused(entry(wide, {}, wide), {}), "");
  EXPECT_NE(refused(entry(narrow, {}, narrow), {}), "");
  EXPECT_NE(refused(entry(narrow, wide, narrow), three), "");
  EXPECT_NE(refused(entry(wide, {}, wide), three), "");
  EXPECT_NE(refused(entry(wide, wide, wide), {}), "");
  EXPECT_NE(refused(entry(wide, {}, narrow), {}), "");
}

TEST(AdamW, ManyTensorsAreAsOneByOne) {
  CpuStream stream(64 << 20, 2);
  for (AdamWCase c : adamw_cases) {
    c.numels = {1, 40001, 5, 16384, 16385, 7, 2049};
    const AdamWTensors together(c, stream), apart(c, stream);
    launch(together.kernel(), stream);
    for (size_t i = 0; i < c.numels.size(); ++i) launch(apart.kernel(i, i + 1), stream);
    EXPECT_EQ(together.everything(), apart.everything());
  }
}

TEST(AdamW, DoesNotDependOnTheNumberOfThreads) {
  for (AdamWCase c : adamw_cases) {
    c.numels = {100003, 17, 40000};
    expect_same_for_any_threads([&](Stream& stream) {
      const AdamWTensors tensors(c, stream);
      launch(tensors.kernel(), stream);
      return tensors.everything();
    });
  }
}

TEST(AdamW, ATensorInSlicesHasTheBitsOfTheWhole) {
  constexpr int64_t granule = AdamW::granule;
  for (AdamWCase c : adamw_cases) {
    c.numels = {1, 25 * granule + 5, granule, 3 * granule - 1};
    CpuStream stream(64 << 20, 2);
    const AdamWTensors whole(c, stream), sliced(c, stream);
    launch(whole.kernel(), stream);
    launch(in_slices(sliced.kernel(), 2 * granule), stream);
    EXPECT_EQ(sliced.everything(), whole.everything()) << name(c.type);
  }
}

TEST(AdamW, ASliceBeginsAtAGranule) {
  CpuStream stream(64 << 20, 1);
  const AdamWTensors tensors({.numels = {10'000}}, stream);
  launch(in_slices(tensors.kernel(), 1000), stream);
  EXPECT_TRUE(contains(error_of([&] { stream.synchronize(); }), "a slice begins at element 1000"));
}

}  // namespace
}  // namespace spool::testing
