// Cross entropy on the cpu, against the formulas in f64 and these against finite differences.

#include "spool/kernels/cross_entropy.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

// A row of 50304 bf16 fits the shared memory of a block on an H200, and not on an RTX 4090.
TEST(CrossEntropy, ReadsTwiceOnCudaOnlyWhatABlockCannotKeep) {
  MetaStream stream{Machine{}};
  const Tensor logits({Shape{4, 50304}, DType::bf16}, stream),
      targets({Shape{4}, DType::i32}, stream);
  const CrossEntropy forward{.logits = logits, .targets = targets};
  CrossEntropy both = forward;
  both.gradient = true;
  const auto row = static_cast<double>(logits.nbytes());
  const CudaArchitecture h200{.major = 9, .minor = 0}, rtx4090{.major = 8, .minor = 9};
  EXPECT_EQ(both.cost().bytes, 3 * row);
  EXPECT_NEAR(both.cost(h200).bytes, 2 * row, 1);
  EXPECT_GT(both.cost(rtx4090).bytes, 2 * row);
  EXPECT_LT(both.cost(rtx4090).bytes, 3 * row);
  EXPECT_EQ(forward.cost(h200).bytes, row);
}

const std::vector<CrossEntropyOptions> all_options{
    {},
    {.label_smoothing = 0.1f},
    {.z_loss = 0.01f},
    {.soft_cap = 2},
    {.label_smoothing = 0.2f, .z_loss = 0.03f, .soft_cap = 3},
};

struct Row {
  double loss = 0;
  Numbers dz;
};

// The formulas of the header for a row of V logits without padding, with g = 1.
Row reference(const Numbers& logits, size_t y, const CrossEntropyOptions& o) {
  const double e = o.label_smoothing, k = o.soft_cap,
               share = 1.0 / static_cast<double>(logits.size());
  Numbers z = logits;
  if (k > 0) {
    for (double& x : z) x = k * std::tanh(x / k);
  }
  double largest = z[0], sum = 0, total = 0;
  for (const double x : z) largest = std::max(largest, x);
  for (const double x : z) sum += std::exp(x - largest), total += x;
  const double lse = largest + std::log(sum);
  Row row{lse - (1 - e) * z[y] - e * share * total + o.z_loss * lse * lse, {}};
  for (size_t v = 0; v < z.size(); ++v) {
    const double p = std::exp(z[v] - lse), target = v == y ? 1 - e : 0;
    const double slope = k > 0 ? 1 - std::pow(z[v] / k, 2) : 1;
    row.dz.push_back((p * (1 + 2 * o.z_loss * lse) - target - e * share) * slope);
  }
  return row;
}

TEST(CrossEntropy, ReferenceGradientIsTheSlopeOfTheLoss) {
  const Numbers logits{0.3, -1.2, 2.5, 0.7, -0.4};
  for (const CrossEntropyOptions& o : all_options) {
    const Row row = reference(logits, 2, o);
    for (size_t v = 0; v < logits.size(); ++v) {
      Numbers more = logits, less = logits;
      more[v] += 1e-5;
      less[v] -= 1e-5;
      const double slope = (reference(more, 2, o).loss - reference(less, 2, o).loss) / 2e-5;
      EXPECT_NEAR(row.dz[v], slope, 1e-9);
    }
  }
}

// N rows; the target of every third is ignored.
struct Sample {
  int64_t N, V, columns;
  Tensor logits, targets, losses;
  std::vector<int32_t> ids;

  Sample(int64_t rows, int64_t vocabulary, int64_t padded, DType t, Stream& stream)
      : N(rows), V(vocabulary), columns(padded), logits(normal({N, columns}, t, stream, 1, 2)) {
    Random random(3);
    for (int64_t n = 0; n < N; ++n) {
      const double any = random.uniform() * static_cast<double>(V);
      ids.push_back(n % 3 == 2 ? -100 : static_cast<int32_t>(any));
    }
    targets = integers({N}, ids, stream);
    losses = unset({N}, accumulator(t), stream);
  }
  CrossEntropy kernel(CrossEntropyOptions o, bool gradient) const {
    o.vocabulary = V < columns ? V : 0;
    return {
        .logits = logits, .targets = targets, .losses = losses, .gradient = gradient, .options = o};
  }
  // Losses, and the gradient with row n times g[n].
  std::pair<Numbers, Numbers> wanted(const CrossEntropyOptions& o, const Numbers& g) const {
    const Numbers all = values(logits);
    Numbers loss(static_cast<size_t>(N)), dz(all.size());
    for (size_t n = 0; n < ids.size(); ++n) {
      if (ids[n] < 0) continue;
      const auto begin = static_cast<int64_t>(n) * columns;
      const Numbers used(all.begin() + begin, all.begin() + begin + V);
      const Row row = reference(used, static_cast<size_t>(ids[n]), o);
      loss[n] = row.loss;
      for (size_t v = 0; v < row.dz.size(); ++v) {
        dz[static_cast<size_t>(begin) + v] = g[n] * row.dz[v];
      }
    }
    return {loss, dz};
  }
};

struct Size {
  int64_t N, V, columns;
};
const std::vector<Size> sizes{{1, 1, 1}, {4, 5, 5}, {5, 17, 24}, {7, 1000, 1000}, {5, 5003, 5056}};

TEST(CrossEntropy, LossAndGradientFollowTheirFormulas) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const auto [N, V, columns] : sizes) {
      for (const CrossEntropyOptions& o : all_options) {
        SCOPED_TRACE(sentence(name(t), ' ', N, " x ", V, " smoothing ", o.label_smoothing, " z ",
                              o.z_loss, " cap ", o.soft_cap));
        const Sample s(N, V, columns, t, stream);
        const auto [losses, dz] = s.wanted(o, Numbers(static_cast<size_t>(N), 1));
        const Numbers before = values(s.logits);
        launch(s.kernel(o, false), stream);
        // A vocabulary of one has a z-loss alone; the rest is rounding.
        const double bound = tolerance(accumulator(t));
        const Numbers alone = values(s.losses);
        for (size_t n = 0; n < alone.size(); ++n) {
          ASSERT_NEAR(alone[n], losses[n], bound * (1 + std::fabs(losses[n])));
        }
        EXPECT_EQ(values(s.logits), before);
        launch(s.kernel(o, true), stream);
        EXPECT_EQ(values(s.losses), alone);
        const Numbers gradient = values(s.logits);
        for (size_t i = 0; i < dz.size(); ++i) {
          ASSERT_NEAR(gradient[i], dz[i], tolerance(t) * std::fabs(dz[i]) + bound) << i;
          const bool padding = static_cast<int64_t>(i) % columns >= V;
          ASSERT_TRUE(!padding || gradient[i] == 0) << i;
        }
      }
    }
  }
}

// The gradient is formed in f32 and rounded once: it is the rounded gradient of f32 logits.
TEST(CrossEntropy, RoundsABf16GradientOnce) {
  CpuStream stream(64 << 20, 2);
  const Sample s(5, 5003, 5056, DType::bf16, stream);
  Sample wide = s;
  wide.logits = unset(s.logits.shape(), DType::f32, stream);
  launch(Cast{.out = wide.logits, .in = s.logits}, stream);
  launch(wide.kernel({}, true), stream);
  launch(s.kernel({}, true), stream);
  const Numbers exact = values(wide.logits), rounded = values(s.logits);
  for (size_t i = 0; i < exact.size(); ++i) {
    // Half a unit in the last of 8 bits, and a little for the exponential.
    ASSERT_NEAR(rounded[i], exact[i], std::fabs(exact[i]) * (1.0 / 256 + 1e-5) + 1e-37) << i;
  }
}

TEST(CrossEntropy, GradientIsMultipliedByScaleAndUpstream) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    const DType wide = accumulator(t);
    const Tensor scale = normal({1}, wide, stream, 5), one = normal({1}, wide, stream, 6);
    const Tensor each = normal({5}, wide, stream, 7);
    for (const bool shared : {true, false}) {
      const Sample s(5, 17, 24, t, stream);
      const Numbers upstream = values(shared ? one : each);
      Numbers g(5);
      for (size_t n = 0; n < 5; ++n) {
        g[n] = values(scale)[0] * (upstream[shared ? 0 : n] - static_cast<double>(0.75f));
      }
      const Numbers wanted = s.wanted(all_options[4], g).second;
      CrossEntropy k = s.kernel(all_options[4], true);
      k.scale = scale;
      k.upstream = shared ? one : each;
      k.upstream_known = 0.75f;
      launch(k, stream);
      EXPECT_LT(difference(values(s.logits), wanted), tolerance(t));
    }
  }
}

TEST(CrossEntropy, ARowWithoutUpstreamHasNoGradient) {
  CpuStream stream(64 << 20, 2);
  for (const CrossEntropyOptions& o : all_options) {
    const Sample s(5, 17, 24, DType::f32, stream);
    const Tensor upstream =
        make_tensor<float>({5}, std::vector<float>{0.5f, 1, 0.5f, 0.5f, 0.5f}, stream);
    CrossEntropy k = s.kernel(o, true);
    k.upstream = upstream;
    k.upstream_known = 0.5f;
    launch(k, stream);
    const Numbers dz = values(s.logits), losses = values(s.losses);
    for (size_t i = 0; i < dz.size(); ++i) {
      ASSERT_TRUE(i / 24 == 1 || dz[i] == 0) << i;
    }
    EXPECT_NE(dz[24], 0);
    EXPECT_GT(losses[0], 0);
  }
}

TEST(CrossEntropy, IgnoredTargetsHaveNoLossAndNoGradient) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    Sample s(5, 17, 24, t, stream);
    s.targets = integers({5}, std::vector<int32_t>(5, -100), stream);
    const Tensor scale = unset({1}, accumulator(t), stream);
    launch(CountTargets{.scale = scale, .targets = s.targets}, stream);
    EXPECT_EQ(values(scale), Numbers{1});
    CrossEntropy k = s.kernel(all_options[4], true);
    k.scale = scale;
    launch(k, stream);
    EXPECT_EQ(values(s.losses), Numbers(5));
    EXPECT_EQ(values(s.logits), Numbers(5 * 24));
  }
}

TEST(CrossEntropy, CountTargetsCountsTheValidOnes) {
  CpuStream stream(1 << 20, 1);
  for (const DType t : {DType::f32, DType::f64}) {
    const Tensor scale = unset({1}, t, stream);
    const Tensor targets = integers({2, 3}, {1, 2, -1, 4, -1, -100}, stream);
    launch(CountTargets{.scale = scale, .targets = targets, .ignore_index = -1}, stream);
    EXPECT_EQ(values(scale), Numbers{0.25});
  }
}

TEST(CrossEntropy, LossesMayBeAbsent) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    const Sample with_losses(5, 17, 24, t, stream), without_losses(5, 17, 24, t, stream);
    launch(with_losses.kernel({}, true), stream);
    CrossEntropy k = without_losses.kernel({}, true);
    k.losses = {};
    launch(k, stream);
    EXPECT_EQ(values(without_losses.logits), values(with_losses.logits));
  }
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  CpuStream stream(1 << 20, 1);
  const Tensor logits =
      make_tensor<float>({1, 4}, std::vector<float>{-3e38f, 1000, -1000, 999}, stream);
  const Tensor targets = integers({1}, {3}, stream), losses = unset({1}, DType::f32, stream);
  launch(CrossEntropy{.logits = logits, .targets = targets, .losses = losses, .gradient = true},
         stream);
  EXPECT_NEAR(values(losses)[0], 1 + std::log1p(std::exp(-1)), 1e-6);
  const double p = 1 / (1 + std::exp(-1));
  EXPECT_LT(difference(values(logits), {0, p, 0, -p}), 1e-6);
}

TEST(CrossEntropy, RefusesATargetOutsideTheVocabulary) {
  for (const int32_t wrong : {-1, 17, 23}) {
    CpuStream stream(64 << 20, 2);
    Sample s(5, 17, 24, DType::f32, stream);
    s.targets = integers({5}, {0, 16, -100, wrong, 1}, stream);
    const std::string words = sentence("target ", wrong, " at position 3 is not in [0, 17)");
    expect_error(ErrorKind::invalid, {words}, [&] {
      launch(s.kernel({}, true), stream);
      stream.synchronize();
    });
  }
}

TEST(CrossEntropy, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    for (const CrossEntropyOptions& o : {all_options[0], all_options[4]}) {
      expect_same_for_any_threads([&](Stream& stream) {
        const Sample s(61, 5003, 5056, t, stream);
        launch(s.kernel(o, true), stream);
        Numbers all = values(s.logits);
        append(all, s.losses);
        return all;
      });
    }
  }
}

}  // namespace
}  // namespace spool::testing
