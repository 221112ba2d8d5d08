// Cross entropy in parts on the cpu, against that of the whole.

#include "tests/kernels/cross_entropy_part_testing.h"

namespace spool::testing {
namespace {

void expect_near(const Numbers& found, const Numbers& wanted, double relative, double absolute) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(found[i], wanted[i], relative * std::fabs(wanted[i]) + absolute) << i;
  }
}

TEST(CrossEntropyPart, LossesAndGradientsAreThoseOfTheWhole) {
  CpuStream stream(64 << 20, 2);
  for (LossInParts c : losses_in_parts()) {
    for (const DType t : floating) {
      c.type = t;
      SCOPED_TRACE(in_words(c));
      const LossAndGradient wanted = whole_loss(c, stream), found = joined_loss(c, stream);
      const double rounding = t == DType::f64 ? 1e-14 : 2e-6;
      expect_near(found.losses, wanted.losses, rounding, rounding);
      // bf16 is rounded from f32, once: to the same or a neighbouring number.
      const double of_gradient = t == DType::bf16 ? 1.0 / 128 : 4 * rounding;
      expect_near(found.gradient, wanted.gradient, of_gradient, 8 * rounding);
    }
  }
}

TEST(CrossEntropyPart, StatisticsFollowTheirFormulas) {
  CpuStream stream(1 << 20, 1);
  const Tensor logits =
      make_tensor<float>({3, 3}, std::vector<float>{1, 3, 9, -1, 2, 9, 4, 5, 9}, stream);
  const Tensor targets = integers({3}, {5, 0, -100}, stream);
  const Tensor four = unset({3, 4}, DType::f32, stream), three = unset({3, 3}, DType::f32, stream);
  // Columns 4 .. 7 of 8, of which 6 count.
  CrossEntropyStatistics k{.statistics = four,
                           .logits = logits,
                           .targets = targets,
                           .part = {.first = 4, .whole = 8},
                           .options = {.vocabulary = 6, .label_smoothing = 0.1f}};
  launch(k, stream);
  const double lowest = std::numeric_limits<float>::lowest();
  const double first = 1 + std::exp(-2), second = 1 + std::exp(-3);
  expect_near(values(four), {3, first, 3, 4, 2, second, 0, 1, lowest, 0, 0, 0}, 1e-6, 0);
  k.statistics = three;
  k.options.label_smoothing = 0;
  launch(k, stream);
  expect_near(values(three), {3, first, 3, 2, second, 0, lowest, 0, 0}, 1e-6, 0);
  k.options.vocabulary = 4;  // this part is padding
  const Tensor others = integers({3}, {3, 0, -100}, stream);
  k.targets = others;
  launch(k, stream);
  expect_near(values(three), {lowest, 0, 0, lowest, 0, 0, lowest, 0, 0}, 1e-6, 0);
}

TEST(CrossEntropyPart, WithoutAGradientLogitsStay) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    const LossInParts c{
        .N = 5, .V = 17, .columns = {12, 12}, .options = options_in_parts[4], .type = t};
    const Numbers wanted = joined_loss(c, stream).losses;
    const LossSample s(c, stream);
    const CutLogits cut(s, stream);
    for (size_t p = 0; p < 2; ++p) {
      const Numbers before = values(cut.parts[p]);
      launch(Fill{.out = s.losses}, stream);
      launch(cut.joined(s, p, /*gradient=*/false), stream);
      EXPECT_EQ(values(s.losses), wanted);
      EXPECT_EQ(values(cut.parts[p]), before);
    }
  }
}

TEST(CrossEntropyPart, LossesMayBeAbsent) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    const LossInParts c{.N = 5, .V = 17, .columns = {12, 12}, .type = t};
    const LossSample s(c, stream);
    const CutLogits with(s, stream), without(s, stream);
    launch(with.joined(s, 1, /*gradient=*/true), stream);
    CrossEntropyJoined k = without.joined(s, 1, /*gradient=*/true);
    k.losses = {};
    launch(k, stream);
    EXPECT_EQ(values(without.parts[1]), values(with.parts[1]));
  }
}

// Logits that a mask has set to -infinity may fill a part; the last two rows are near the ends of
// the range.
const std::vector<float> extreme_rows() {
  const float none = -std::numeric_limits<float>::infinity();
  return {none, none, 1, 2, 3, 4, none, none, -3e38f, 1000, -1000, 999};
}

TEST(CrossEntropyPart, APartMayBeMaskedAndLogitsLarge) {
  CpuStream stream(1 << 20, 1);
  for (const DType t : floating) {
    LossSample s({.N = 3, .V = 4, .columns = {2, 2}, .type = t}, stream);
    launch(Cast{.out = s.logits, .in = make_tensor<float>({3, 4}, extreme_rows(), stream)}, stream);
    s.targets = integers({3}, {3, 0, 3}, stream);
    const CutLogits cut(s, stream);
    for (size_t p = 0; p < 2; ++p) launch(cut.joined(s, p, /*gradient=*/true), stream);
    const double e = std::exp(-1), p = 1 / (1 + e);
    // In bf16 999 is 1000.
    const double last = t == DType::bf16 ? std::log(2) : 1 + std::log1p(e);
    const double more = t == DType::bf16 ? 0.5 : p;
    expect_near(values(s.losses), {std::log1p(e), 1 + std::log1p(e), last}, 1e-6, 0);
    expect_near(values(cut.parts[0]), {0, 0, p * e - 1, p, 0, more}, tolerance(t), 0);
    expect_near(values(cut.parts[1]), {p * e, p - 1, 0, 0, 0, -more}, tolerance(t), 0);
  }
}

TEST(CrossEntropyPart, RefusesATargetOutsideTheWholeVocabulary) {
  for (const int32_t wrong : {-1, 17, 23}) {
    for (const bool statistics : {true, false}) {
      CpuStream stream(64 << 20, 2);
      LossSample s({.N = 5, .V = 17, .columns = {12, 12}}, stream);
      const CutLogits cut(s, stream);
      s.targets = integers({5}, {0, 16, -100, wrong, 1}, stream);
      const std::string kernel = statistics ? "cross_entropy_statistics" : "cross_entropy_joined";
      const std::string words =
          sentence(kernel, ": target ", wrong, " at position 3 is not in [0, 17)");
      expect_error(ErrorKind::invalid, {words}, [&] {
        if (statistics) {
          const CutLogits refused(s, stream);
        } else {
          launch(cut.joined(s, 0, /*gradient=*/true), stream);
        }
        stream.synchronize();
      });
    }
  }
}

// Expects that both kernels refuse a part of 4 rows and 5 columns, with these words.
class RefusedPart : public ::testing::Test {
 protected:
  Tensor f32(const Shape& shape) { return Tensor({shape, DType::f32}, stream_); }

  void refused(const VocabularyPart& part, const CrossEntropyOptions& options,
               const std::string& words) {
    const auto statistics = [&] {
      launch(CrossEntropyStatistics{.statistics = f32({4, 3}),
                                    .logits = logits_,
                                    .targets = targets_,
                                    .part = part,
                                    .options = options},
             stream_);
    };
    EXPECT_EQ(error_of(statistics), "cross_entropy_statistics: " + words);
    EXPECT_EQ(joined(f32({2, 4, 3}), part, options), "cross_entropy_joined: " + words);
  }
  std::string joined(const Tensor& statistics, const VocabularyPart& part,
                     const CrossEntropyOptions& options) {
    return error_of([&] {
      launch(CrossEntropyJoined{.logits = logits_,
                                .statistics = statistics,
                                .targets = targets_,
                                .part = part,
                                .options = options},
             stream_);
    });
  }

  MetaStream stream_{Machine{}};
  Tensor logits_ = f32({4, 5}), targets_{{Shape{4}, DType::i32}, stream_};
};

TEST_F(RefusedPart, DoesNotLieInTheWhole) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  refused({.first = -1, .whole = 10}, {},
          "the part begins at -1 of the columns of the whole vocabulary; it must be 0 or more");
  const std::string lies = "; they must lie in it";
  refused({.first = 6, .whole = 10}, {},
          "the part has 5 columns from 6 on, and the whole vocabulary has 10" + lies);
  refused(
      {.first = most, .whole = 10}, {},
      "the part has 5 columns from 9223372036854775807 on, and the whole vocabulary has 10" + lies);
  refused({.first = 5, .whole = 0}, {},
          "the part has 5 columns from 5 on, and the whole vocabulary has 5" + lies);
  const std::string use = "use 0 if there are no other parts, or the number of all parts together";
  refused({.first = 5, .whole = -1}, {},
          "the whole vocabulary has -1 columns; " + use + ", at most 2147483647");
  refused({.first = 5, .whole = int64_t{1} << 31}, {},
          "the whole vocabulary has 2147483648 columns; " + use + ", at most 2147483647");
  refused({.first = 5, .whole = 10}, {.vocabulary = 11},
          "the vocabulary of 11 is larger than the 10 columns of the logits");
  refused({.first = 5, .whole = 10}, {.vocabulary = -1},
          "a vocabulary of -1; use 0 for all columns of the logits, or the number of those that "
          "are no padding");
}

TEST_F(RefusedPart, HasOtherStatistics) {
  const VocabularyPart part{.first = 5, .whole = 10};
  EXPECT_EQ(joined(f32({2, 4, 3}), part, {}), "");
  const auto expect_other = [&](const Shape& shape, const CrossEntropyOptions& options) {
    const Tensor found = f32(shape);
    EXPECT_EQ(
        joined(found, part, options),
        sentence("cross_entropy_joined: statistics is ", found.spec(), ", and f32 (parts, 4, ",
                 CrossEntropyStatistics::numbers(options), ") would fit the other arguments"));
  };
  for (const Shape& other : {Shape{2, 3, 3}, {8, 3}, {2, 4, 4}, {1, 2, 4, 3}, {0, 4, 3}}) {
    expect_other(other, {});
  }
  expect_other({2, 4, 3}, {.label_smoothing = 0.1f});
}

TEST(CrossEntropyPart, CostsReadTheLogitsTwiceAndWriteThemOnce) {
  MetaStream stream{Machine{}};
  const Tensor logits({Shape{4, 5000}, DType::bf16}, stream),
      statistics({Shape{1, 4, 3}, DType::f32}, stream), targets({Shape{4}, DType::i32}, stream);
  const CrossEntropyStatistics first{
      .statistics = statistics, .logits = logits, .targets = targets};
  CrossEntropyJoined second{.logits = logits, .statistics = statistics, .targets = targets};
  EXPECT_EQ(first.cost().bytes, bytes(logits, statistics));
  EXPECT_EQ(second.cost().bytes, bytes(statistics));
  second.gradient = true;
  EXPECT_EQ(second.cost().bytes, bytes(logits, logits, statistics));
  EXPECT_GT(second.cost().flops, first.cost().flops);
}

TEST(CrossEntropyPart, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    for (const CrossEntropyOptions& o : {options_in_parts[0], options_in_parts[4]}) {
      expect_same_for_any_threads([&](Stream& stream) {
        const LossInParts c{.N = 61, .V = 5003, .columns = {2519, 2537}, .options = o, .type = t};
        LossAndGradient all = joined_loss(c, stream);
        all.losses.insert(all.losses.end(), all.gradient.begin(), all.gradient.end());
        return all.losses;
      });
    }
  }
}

}  // namespace
}  // namespace spool::testing
