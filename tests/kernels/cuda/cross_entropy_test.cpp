// runs: threads
// CrossEntropy and CountTargets on cuda.

#include "spool/kernels/cross_entropy.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaCrossEntropy : public OnCuda {};

const std::vector<CrossEntropyOptions> all_options{
    {},
    {.label_smoothing = 0.1f},
    {.z_loss = 0.01f},
    {.soft_cap = 2},
    {.label_smoothing = 0.2f, .z_loss = 0.03f, .soft_cap = 3},
};

struct Size {
  int64_t N, V, columns;
};
// Rows of one element, of less than a pack, misaligned, with misaligned padding, and with more
// elements than a thread keeps in registers.
const std::vector<Size> sizes{{1, 1, 1},       {4, 5, 5},       {5, 17, 24},    {5, 24, 24},
                              {9, 1000, 1003}, {3, 5003, 5056}, {2, 5056, 5056}};

// N rows behind the first row of a larger tensor; the target of every third is ignored.
struct Sample {
  int64_t V, columns;
  Tensor logits, targets, losses;

  Sample(const Size& size, DType t, Stream& stream)
      : V(size.V),
        columns(size.columns),
        logits(normal({size.N + 1, columns}, t, stream, 1, 2).slice({1, size.N + 1})),
        losses(unset({size.N}, DType::f32, stream)) {
    Random random(3);
    std::vector<int32_t> ids;
    for (int64_t n = 0; n < size.N; ++n) {
      const double any = random.uniform() * static_cast<double>(V);
      ids.push_back(n % 3 == 2 ? -100 : static_cast<int32_t>(any));
    }
    targets = integers({size.N}, ids, stream);
  }
  CrossEntropy kernel(CrossEntropyOptions o, bool gradient) const {
    o.vocabulary = V < columns ? V : 0;
    return {
        .logits = logits, .targets = targets, .losses = losses, .gradient = gradient, .options = o};
  }
  Numbers results() const {
    Numbers all = values(logits);
    append(all, losses);
    return all;
  }
};

TEST_F(CudaCrossEntropy, LossAndGradientMatchTheCpu) {
  for (const DType t : cuda_types) {
    for (const Size& size : sizes) {
      for (const CrossEntropyOptions& o : all_options) {
        SCOPED_TRACE(sentence(name(t), ' ', size.N, " x ", size.V, " of ", size.columns,
                              " smoothing ", o.label_smoothing, " z ", o.z_loss, " cap ",
                              o.soft_cap));
        const auto loss = [&](Stream& stream) {
          const Sample s(size, t, stream);
          launch(s.kernel(o, false), stream);
          return values(s.losses);
        };
        const auto gradient = [&](Stream& stream) {
          const Sample s(size, t, stream);
          launch(s.kernel(o, true), stream);
          return values(s.logits);
        };
        // A vocabulary of one has a z-loss alone and no gradient; the rest is rounding.
        if (size.V > 1) {
          expect_as_on_cpu(loss, 1e-5);
          expect_as_on_cpu(gradient, tolerance(t));
        } else {
          const auto stream = cuda_stream();
          for (const double x : gradient(*stream)) EXPECT_LT(std::fabs(x), 1);
        }
      }
    }
  }
}

TEST_F(CudaCrossEntropy, WithoutAGradientTheLossIsTheSameAndLogitsStay) {
  const auto stream = cuda_stream();
  for (const DType t : cuda_types) {
    const Sample s({9, 1000, 1003}, t, *stream);
    const Numbers before = values(s.logits);
    launch(s.kernel(all_options[4], false), *stream);
    const Numbers alone = values(s.losses);
    EXPECT_EQ(values(s.logits), before);
    launch(s.kernel(all_options[4], true), *stream);
    EXPECT_EQ(values(s.losses), alone);
  }
}

// Shared memory is 227 KiB at most.
TEST_F(CudaCrossEntropy, ARowMayExceedSharedMemory) {
  for (const CrossEntropyOptions& o : {all_options[0], all_options[4]}) {
    const auto work = [&](Stream& stream) {
      const Sample s({2, 60001, 60003}, DType::f32, stream);
      launch(s.kernel(o, true), stream);
      return s.results();
    };
    expect_as_on_cpu(work, 1e-5);
  }
}

// The gradient is formed in f32 and rounded once: it is the rounded gradient of f32 logits.
TEST_F(CudaCrossEntropy, RoundsABf16GradientOnce) {
  const auto stream = cuda_stream();
  const Sample s({5, 1003, 1056}, DType::bf16, *stream);
  Sample wide = s;
  wide.logits = unset(s.logits.shape(), DType::f32, *stream);
  launch(Cast{.out = wide.logits, .in = s.logits}, *stream);
  launch(wide.kernel({}, true), *stream);
  launch(s.kernel({}, true), *stream);
  const Numbers exact = values(wide.logits), rounded = values(s.logits);
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_NEAR(rounded[i], exact[i], std::fabs(exact[i]) * (1.0 / 256 + 1e-5) + 1e-37) << i;
  }
}

TEST_F(CudaCrossEntropy, GradientIsMultipliedByScaleAndUpstream) {
  for (const DType t : cuda_types) {
    for (const int64_t upstreams : {1, 5}) {
      const auto work = [=](Stream& stream) {
        const Sample s({5, 17, 24}, t, stream);
        const Tensor scale = normal({1}, DType::f32, stream, 5),
                     upstream = normal({upstreams}, DType::f32, stream, 6);
        CrossEntropy k = s.kernel(all_options[4], true);
        k.scale = scale;
        k.upstream = upstream;
        k.upstream_known = 0.75f;
        launch(k, stream);
        return s.results();
      };
      expect_as_on_cpu(work, tolerance(t));
    }
  }
}

TEST_F(CudaCrossEntropy, ARowWithoutUpstreamHasNoGradient) {
  for (const bool with_losses : {true, false}) {
    const auto work = [=](Stream& stream) {
      const Sample s({5, 17, 24}, DType::f32, stream);
      const Tensor upstream =
          make_tensor<float>({5}, std::vector<float>{0.5f, 1, 0.5f, 0.5f, 0.5f}, stream);
      CrossEntropy k = s.kernel({}, true);
      k.upstream = upstream;
      k.upstream_known = 0.5f;
      if (!with_losses) k.losses = {};
      launch(k, stream);
      const Numbers dz = values(s.logits);
      for (size_t i = 0; i < dz.size(); ++i) EXPECT_TRUE(i / 24 == 1 || dz[i] == 0) << i;
      return with_losses ? s.results() : dz;
    };
    expect_as_on_cpu(work, 1e-5);
  }
}

TEST_F(CudaCrossEntropy, LossesMayBeAbsent) {
  const auto stream = cuda_stream();
  for (const DType t : cuda_types) {
    const Sample with({5, 17, 24}, t, *stream), without({5, 17, 24}, t, *stream);
    launch(with.kernel({}, true), *stream);
    CrossEntropy k = without.kernel({}, true);
    k.losses = {};
    launch(k, *stream);
    EXPECT_EQ(values(without.logits), values(with.logits));
    for (const double x : values(without.losses)) EXPECT_TRUE(std::isnan(x));
  }
}

TEST_F(CudaCrossEntropy, LargeLogitsDoNotOverflow) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto stream = cuda_stream();
  const Tensor logits = make_tensor<float>(
      {2, 5},
      std::vector<float>{-3e38f, 1000, -1000, 999, -infinity, -infinity, -3e38f, -2, -1, -2},
      *stream);
  const Tensor targets = integers({2}, {3, 3}, *stream), losses = unset({2}, DType::f32, *stream);
  launch(CrossEntropy{.logits = logits, .targets = targets, .losses = losses, .gradient = true},
         *stream);
  EXPECT_NEAR(values(losses)[0], 1 + std::log1p(std::exp(-1)), 1e-6);
  EXPECT_NEAR(values(losses)[1], std::log1p(2 * std::exp(-1)), 1e-6);
  const double p = 1 / (1 + std::exp(-1)), q = 1 / (1 + 2 * std::exp(-1));
  EXPECT_LT(
      difference(values(logits), {0, p, 0, -p, 0, 0, 0, q * std::exp(-1), q - 1, q * std::exp(-1)}),
      1e-6);
}

// Their product with log2 e is infinite, their differences are not.
TEST_F(CudaCrossEntropy, LogitsMayBeNearTheLargestNumber) {
  const auto stream = cuda_stream();
  const std::vector<float> row{3e38f, 3e38f, 2.9e38f, 0, -1, -3e38f, 3e38f, 3e38f};
  const Tensor logits = make_tensor<float>({1, 8}, row, *stream);
  const Tensor targets = integers({1}, {6}, *stream), losses = unset({1}, DType::f32, *stream);
  launch(CrossEntropy{.logits = logits, .targets = targets, .losses = losses, .gradient = true},
         *stream);
  EXPECT_NEAR(values(losses)[0], std::log(4), 1e-6);
  EXPECT_LT(difference(values(logits), {0.25, 0.25, 0, 0, 0, 0, -0.75, 0.25}), 1e-6);
}

// The cpu throws; the cuda device shows it in the result.
TEST_F(CudaCrossEntropy, ATargetOutsideTheVocabularyMakesItsRowNaN) {
  const auto stream = cuda_stream();
  for (const int32_t wrong : {-1, 17, 23, 1 << 30}) {
    Sample s({5, 17, 24}, DType::f32, *stream);
    s.targets = integers({5}, {0, 16, -100, wrong, 1}, *stream);
    launch(s.kernel({}, true), *stream);
    const Numbers losses = values(s.losses), dz = values(s.logits);
    for (size_t n = 0; n < 5; ++n) EXPECT_EQ(std::isnan(losses[n]), n == 3);
    for (size_t i = 0; i < dz.size(); ++i) EXPECT_EQ(std::isnan(dz[i]), i / 24 == 3) << i;
  }
}

TEST_F(CudaCrossEntropy, CountTargetsMatchesTheCpu) {
  for (const DType t : {DType::f32, DType::f64}) {
    for (const int64_t N : {1, 6, 1024, 3000}) {
      for (const int32_t ignored : {-100, 1}) {
        const auto work = [=](Stream& stream) {
          std::vector<int32_t> ids(static_cast<size_t>(N), 1);
          for (size_t n = 0; n < ids.size(); n += 3) ids[n] = -100;
          const Tensor scale = unset({1}, t, stream), targets = integers({N}, ids, stream);
          launch(CountTargets{.scale = scale, .targets = targets, .ignore_index = ignored}, stream);
          return values(scale);
        };
        expect_as_on_cpu(work, 1e-15);
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
