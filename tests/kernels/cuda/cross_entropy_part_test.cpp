// runs: threads
// Cross entropy in parts on cuda, against the cpu's, which is that of the whole.

#include "tests/kernels/cross_entropy_part_testing.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaCrossEntropyPart : public OnCuda {};

TEST_F(CudaCrossEntropyPart, LossesAndGradientsMatchTheCpu) {
  for (LossInParts c : losses_in_parts()) {
    for (const DType t : cuda_types) {
      c.type = t;
      SCOPED_TRACE(in_words(c));
      const auto losses = [&](Stream& stream) { return joined_loss(c, stream).losses; };
      const auto gradient = [&](Stream& stream) { return joined_loss(c, stream).gradient; };
      if (c.V > 1) {
        expect_as_on_cpu(losses, 1e-5);
        expect_as_on_cpu(gradient, tolerance(t));
      }
    }
  }
}

// More packs than the threads of a block load at a time.
TEST_F(CudaCrossEntropyPart, APartMayBeLong) {
  for (const CrossEntropyOptions& o : {options_in_parts[0], options_in_parts[4]}) {
    const LossInParts c{.N = 2, .V = 60001, .columns = {31003, 29003}, .options = o};
    expect_as_on_cpu([&](Stream& stream) { return joined_loss(c, stream).losses; }, 1e-5);
    expect_as_on_cpu([&](Stream& stream) { return joined_loss(c, stream).gradient; }, 1e-5);
  }
}

// More rows than a block of join_losses has.
TEST_F(CudaCrossEntropyPart, RowsMayBeMany) {
  const LossInParts c{.N = 600, .V = 5, .columns = {3, 3}, .upstreams = 600};
  expect_as_on_cpu([&](Stream& stream) { return joined_loss(c, stream).losses; }, 1e-5);
  expect_as_on_cpu([&](Stream& stream) { return joined_loss(c, stream).gradient; }, 1e-5);
}

TEST_F(CudaCrossEntropyPart, StatisticsMatchTheCpu) {
  for (const DType t : cuda_types) {
    for (const CrossEntropyOptions& o : options_in_parts) {
      const LossInParts c{.N = 7, .V = 17, .columns = {5, 1, 11, 3}, .options = o, .type = t};
      const auto statistics = [&](Stream& stream) {
        const LossSample s(c, stream);
        Numbers all = values(CutLogits(s, stream).statistics);
        for (double& x : all) x = std::max(x, -1e6);  // the lowest number dwarfs all others
        return all;
      };
      expect_as_on_cpu(
          [&](Stream& stream) {
            Numbers all = statistics(stream);
            for (double& x : all) x = x == -1e6 ? 0 : x;
            return all;
          },
          1e-5);
      expect_as_on_cpu(
          [&](Stream& stream) {
            Numbers all = statistics(stream);
            for (double& x : all) x = x == -1e6 ? 1 : 0;
            return all;
          },
          1e-15);
    }
  }
}

TEST_F(CudaCrossEntropyPart, WithoutAGradientLogitsStayAndLossesMayBeAbsent) {
  const auto stream = cuda_stream();
  for (const DType t : cuda_types) {
    const LossInParts c{
        .N = 5, .V = 17, .columns = {12, 12}, .options = options_in_parts[4], .type = t};
    const LossAndGradient wanted = joined_loss(c, *stream);
    const LossSample s(c, *stream);
    const CutLogits cut(s, *stream);
    const Numbers before = values(cut.parts[0]);
    launch(cut.joined(s, 0, /*gradient=*/false), *stream);
    EXPECT_EQ(values(s.losses), wanted.losses);
    EXPECT_EQ(values(cut.parts[0]), before);
    CrossEntropyJoined k = cut.joined(s, 0, /*gradient=*/true);
    k.losses = {};
    launch(k, *stream);
    const Numbers found = values(cut.parts[0]);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i], wanted.gradient[i / 12 * 24 + i % 12]) << i;
    }
  }
}

// Logits that a mask has set to -infinity may fill a part; the last row is near the range's end.
TEST_F(CudaCrossEntropyPart, APartMayBeMaskedAndLogitsLarge) {
  const float none = -std::numeric_limits<float>::infinity();
  const std::vector<float> rows{none, none, 1, 2, 3, 4, none, none, -3e38f, 3e38f, 3e38f, 0};
  for (const DType t : cuda_types) {
    const auto work = [&](Stream& stream) {
      LossSample s({.N = 3, .V = 4, .columns = {2, 2}, .type = t}, stream);
      launch(Cast{.out = s.logits, .in = make_tensor<float>({3, 4}, rows, stream)}, stream);
      s.targets = integers({3}, {3, 0, 1}, stream);
      const CutLogits cut(s, stream);
      for (size_t p = 0; p < 2; ++p) launch(cut.joined(s, p, /*gradient=*/true), stream);
      Numbers all = values(s.losses);
      for (const Tensor& part : cut.parts) append(all, part);
      for (const double x : all) EXPECT_TRUE(std::isfinite(x));
      return all;
    };
    expect_as_on_cpu(work, tolerance(t));
  }
}

// The cpu throws; the cuda device shows it in the result.
TEST_F(CudaCrossEntropyPart, ATargetOutsideTheWholeVocabularyMakesItsRowNaN) {
  const auto stream = cuda_stream();
  for (const int32_t wrong : {-1, 17, 23, 1 << 30}) {
    LossSample s({.N = 5, .V = 17, .columns = {12, 12}}, *stream);
    s.targets = integers({5}, {0, 16, -100, wrong, 1}, *stream);
    const CutLogits cut(s, *stream);
    for (size_t p = 0; p < 2; ++p) {
      launch(cut.joined(s, p, /*gradient=*/true), *stream);
      const Numbers losses = values(s.losses), dz = values(cut.parts[p]);
      for (size_t n = 0; n < 5; ++n) EXPECT_EQ(std::isnan(losses[n]), n == 3);
      for (size_t i = 0; i < dz.size(); ++i) EXPECT_EQ(std::isnan(dz[i]), i / 12 == 3) << i;
    }
  }
}

TEST_F(CudaCrossEntropyPart, ThereMayBeNoRows) {
  const auto stream = cuda_stream();
  const LossInParts c{.N = 0, .V = 5, .columns = {3, 2}};
  EXPECT_EQ(joined_loss(c, *stream).gradient, Numbers());
}

}  // namespace
}  // namespace spool::testing
