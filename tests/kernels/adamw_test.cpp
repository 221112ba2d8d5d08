// AdamW and ClipFactor on the cpu against their formulas in f64.

#include "spool/kernels/adamw.h"

#include "spool/kernels/clip_factor.h"
#include "tests/kernels/adamw_testing.h"

namespace spool::testing {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

Tensor floats(const std::vector<float>& all, Stream& stream) {
  return make_tensor<float>({static_cast<int64_t>(all.size())}, all, stream);
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

// A parameter with its state, and the same in f64.
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

TEST(AdamW, TenStepsFollowTheFormula) {
  for (const int64_t n : {1, 5, 17, 1000, 40001}) {
    take_ten_steps(n, DType::f32, DType::f32);
    take_ten_steps(n, DType::bf16, DType::bf16);
    take_ten_steps(n, DType::bf16, DType::f32);
  }
}

TEST(AdamW, ChangesNothingIfTheGradientsAreNotFinite) {
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

// A step of eight elements whose arguments fit.
struct Fitting {
  CpuStream stream{1 << 20, 1};
  Tensor three = floats({1, 1, 1}, stream), small = floats({1, 2, 3, 4, 5, 6, 7}, stream);
  Tensor random = make_tensor<int32_t>({4}, std::vector<int32_t>{1, 2, 3, 4}, stream);
  AdamW::Entry wide, narrow;  // f32, and bf16 with a master
  std::vector<Tensor> all;

  Fitting() {
    wide = {.parameter = make(DType::f32),
            .m = make(DType::f32),
            .v = make(DType::f32),
            .grad = make(DType::f32)};
    narrow = {.parameter = make(DType::bf16),
              .master = make(DType::f32),
              .m = make(DType::f32),
              .v = make(DType::f32),
              .grad = make(DType::bf16)};
  }
  View make(DType type) { return all.emplace_back(normal({8}, type, stream, all.size())); }
  AdamW kernel(const AdamW::Entry& entry, bool stochastic = false) const {
    return {.tensors = {entry},
            .random = stochastic ? View(random) : View(),
            .schedule = three,
            .clip = three};
  }
};

void expect_refused(std::string_view words, const AdamW& k) {
  expect_error(ErrorKind::invalid, {"adamw", words}, [&] { k.check_arguments(); });
}

TEST(AdamW, RefusesWrongTypes) {
  Fitting f;
  const auto with = [](AdamW::Entry entry, View AdamW::Entry::*member, const View& other) {
    entry.*member = other;
    return entry;
  };
  using Entry = AdamW::Entry;
  const Entry alone = with(f.narrow, &Entry::master, {}),
              wide_grad = with(f.narrow, &Entry::grad, f.wide.grad);
  for (const AdamW& k : {f.kernel(f.wide), f.kernel(f.narrow), f.kernel(wide_grad),
                         f.kernel(alone, /*stochastic=*/true)}) {
    launch(k, f.stream);
  }
  expect_refused("bf16 without a master, rounded to nearest", f.kernel(alone));
  expect_refused("bf16 with a master, rounded stochastically", f.kernel(f.narrow, true));
  expect_refused("f32 without a master, rounded stochastically", f.kernel(f.wide, true));
  expect_refused("f32 with a master, rounded to nearest",
                 f.kernel(with(f.wide, &Entry::master, f.narrow.master)));
  expect_refused("the gradient of a parameter is bf16 (8)",
                 f.kernel(with(f.wide, &Entry::grad, f.narrow.grad)));
  expect_refused("state is bf16 (8)", f.kernel(with(f.wide, &Entry::m, f.narrow.grad)));
  expect_refused("a parameter is i32", f.kernel(with(f.wide, &Entry::parameter, f.random)));
}

TEST(AdamW, RefusesSizesThatDoNotFit) {
  Fitting f;
  const auto refused = [&](std::string_view words, View AdamW::Entry::*member, const View& other) {
    AdamW::Entry entry = f.narrow;
    entry.*member = other;
    expect_refused(words, f.kernel(entry));
  };
  using Entry = AdamW::Entry;
  refused("the gradient of a parameter is f32 (7)", &Entry::grad, f.small);
  refused("state is f32 (7)", &Entry::m, f.small);
  refused("state is f32 (7)", &Entry::v, f.small);
  refused("a master is f32 (7)", &Entry::master, f.small);
  refused("has no m, or no v", &Entry::v, {});
  refused("m f32 (8) overlaps the memory of v", &Entry::v, f.narrow.m);
  refused("overlaps the memory of its master", &Entry::m, f.narrow.master);
  refused("overlaps the memory of its gradient", &Entry::parameter, f.narrow.grad);
  AdamW k = f.kernel(f.wide);
  k.schedule = f.small;
  expect_refused("schedule is f32 (7), and f32 (3) would fit", k);
  k = f.kernel(f.wide);
  k.clip = {};
  expect_refused("clip is absent", k);
}

TEST(AdamW, ManyTensorsTogetherHaveTheBitsOfOneByOne) {
  CpuStream stream(64 << 20, 2);
  for (AdamWCase c : adamw_cases) {
    c.numels = {1, 40001, 5, 16384, 16385, 7, 2049};
    const AdamWTensors together(c, stream), apart(c, stream);
    launch(together.kernel(), stream);
    for (size_t i = 0; i < c.numels.size(); ++i) launch(apart.kernel(i, i + 1), stream);
    EXPECT_EQ(together.everything(), apart.everything());
  }
}

TEST(AdamW, BitsDoNotDependOnTheNumberOfThreads) {
  for (AdamWCase c : adamw_cases) {
    c.numels = {100003, 17, 40000};
    expect_same_for_any_threads([&](Stream& stream) {
      const AdamWTensors tensors(c, stream);
      launch(tensors.kernel(), stream);
      return tensors.everything();
    });
  }
}

TEST(AdamW, SlicesHaveTheBitsOfTheWhole) {
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

TEST(AdamW, RefusesASliceThatDoesNotBeginAtAGranule) {
  CpuStream stream(64 << 20, 1);
  const AdamWTensors tensors({.numels = {10'000}}, stream);
  expect_error(ErrorKind::invalid, {"slice", "element 1000"}, [&] {
    launch(in_slices(tensors.kernel(), 1000), stream);
    stream.synchronize();
  });
}

// A rate multiplies the learning rate: by a power of two, to the bit.
TEST(AdamW, ARateScalesTheLearningRate) {
  for (AdamWCase c : adamw_cases) {
    c.numels = {40001, 5};
    CpuStream stream(64 << 20, 2);
    const AdamWTensors scaled(c, stream), plain(c, stream);
    AdamW k = scaled.kernel();
    const AdamW all = k;
    k.tensors = {};
    for (AdamW::Entry t : all.tensors) {
      t.rate = 0.25f;
      k.tensors.add(t);
    }
    launch(k, stream);
    AdamW slower = plain.kernel();
    const Tensor schedule = floats({0.1f * 0.25f, 0.1f, 0.05f}, stream);
    slower.schedule = schedule;
    launch(slower, stream);
    EXPECT_EQ(scaled.everything(), plain.everything());
  }
}

}  // namespace
}  // namespace spool::testing
