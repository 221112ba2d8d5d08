// Rotary position embedding on the cpu, and its table.

#include "spool/kernels/rope.h"

#include "spool/kernels/rope_table.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

constexpr Heads heads{.query = 3, .key = 1};
constexpr int64_t B = 2, T = 5, packed = 5, rows = 40;

Tensor table_of(int64_t D, DType t, Stream& stream) {
  const RopeFrequencies frequencies{.theta = 50};
  if (t == DType::f64) {
    return make_tensor<double>({rows, D}, rope_table<double>(rows, D, frequencies), stream);
  }
  return make_tensor<float>({rows, D}, rope_table<float>(rows, D, frequencies), stream);
}

// x with the pairs of the first four heads turned by positions[token] times their frequency.
Numbers turned(const Numbers& x, int64_t D, const std::vector<int32_t>& positions, double sign) {
  Numbers y = x;
  const std::vector<float> f = inverse_frequencies(D, {.theta = 50});
  for (int64_t i = 0; i < B * T * 4 * D / 2; ++i) {
    const int64_t d = i % (D / 2), head = i / (D / 2) % 4, n = i / (D / 2) / 4;
    const auto a = static_cast<size_t>((n * packed + head) * D + d);
    const size_t b = a + static_cast<size_t>(D) / 2;
    const double angle = sign * double{static_cast<float>(positions[static_cast<size_t>(n)]) *
                                       f[static_cast<size_t>(d)]};
    y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
  }
  return y;
}

TEST(Rope, TurnsQueriesAndKeysAndCopiesValues) {
  CpuStream stream(64 << 20, 2);
  const std::vector<int32_t> from_7{7, 8, 9, 10, 11, 7, 8, 9, 10, 11};
  const std::vector<int32_t> any{0, 1, 2, 0, 1, 39, 17, 17, 3, 0};
  for (const DType t : floating) {
    for (const int64_t D : {2, 6, 64}) {
      for (const bool back : {false, true}) {
        SCOPED_TRACE(sentence(name(t), ", heads of ", D, back ? ", back" : ""));
        const Tensor x = normal({B, T, packed * D}, t, stream, 1);
        const Tensor table = table_of(D, t, stream), at = integers({B, T}, any, stream);
        Rope k{.y = {}, .x = x, .table = table, .heads = heads, .first_position = 7, .back = back};
        const auto run = [&](const Grad& y) { k.y = y, launch(k, stream); };
        for (const DType to : {t, accumulator(t)}) {
          expect_gradient({x.shape(), to}, stream, turned(values(x), D, from_7, back ? -1 : 1),
                          run);
        }
        k.positions = at;
        k.first_position = 0;
        const Numbers wanted = turned(values(x), D, any, back ? -1 : 1);
        expect_gradient({x.shape(), t}, stream, wanted, run);
        run(x);
        EXPECT_LT(difference(values(x), wanted), tolerance(t)) << "over x";
      }
    }
  }
}

TEST(Rope, PositionsOutsideTheTableAreRefused) {
  const auto run = [&](const std::vector<int32_t>& positions, int64_t first_position) {
    CpuStream stream(1 << 20, 1);
    const Tensor x = normal({1, 2, packed * 4}, DType::f32, stream, 1);
    const Tensor table = table_of(4, DType::f32, stream);
    Rope k{.y = x, .x = x, .table = table, .heads = heads, .first_position = first_position};
    const Tensor at = positions.empty() ? Tensor() : integers({1, 2}, positions, stream);
    k.positions = at;
    launch(k, stream);
    stream.synchronize();
  };
  expect_error(ErrorKind::invalid, {"rope: position 40 of token 1", "[0, 40)"}, [&] {
    run({0, 40}, 0);
  });
  expect_error(ErrorKind::invalid, {"rope: position -1 of token 0"}, [&] { run({-1, 0}, 0); });
  expect_error(ErrorKind::invalid, {"rope: table is f32 (40, 4)", "(at least 41, 4)"},
               [&] { run({}, 39); });
}

TEST(Rope, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Tensor x = normal({17, 30, packed * 64}, t, stream, 1), y = unset(x.shape(), t, stream);
      launch(Rope{.y = y, .x = x, .table = table_of(64, t, stream), .heads = heads}, stream);
      return values(y);
    });
  }
}

// With an original context of 512, pairs are on all sides of both limits.  The numbers are those of
// the formulas in Python, rounded to f32 after each operation.
TEST(RopeTable, FrequenciesAreThoseOfLlama3) {
  const Llama3Scaling scaling{.factor = 8, .low = 1, .high = 4, .original_context = 512};
  const std::vector<float> plain = inverse_frequencies(16, {.theta = 10000});
  const std::vector<float> found = inverse_frequencies(16, {.theta = 10000, .scaling = scaling});
  const std::vector<double> wanted{1,
                                   0.316227764,
                                   0.100000001,
                                   0.0184966773,
                                   0.00124999997,
                                   0.000395284733,
                                   0.000125000006,
                                   3.95284733e-05};
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i] / wanted[i], 1, 3e-7) << i;
  EXPECT_EQ(found.front(), plain.front());
  EXPECT_EQ(found.back(), plain.back() / 8);
}

// Far from the start an angle in f64 would be another: the product is rounded to f32.
TEST(RopeTable, AnglesAreProductsInF32) {
  const int64_t far = 100000;
  const std::vector<float> f = inverse_frequencies(8, {.theta = 2});
  const std::vector<double> all = rope_table<double>(far + 1, 8, {.theta = 2});
  double apart = 0;
  for (size_t i = 0; i < 4; ++i) {
    const double angle = double{static_cast<float>(far) * f[i]};
    EXPECT_EQ(at(all, far * 8 + static_cast<int64_t>(i)), std::cos(angle));
    EXPECT_EQ(at(all, far * 8 + 4 + static_cast<int64_t>(i)), std::sin(angle));
    apart = std::max(apart, std::fabs(angle - static_cast<double>(far) * double{f[i]}));
  }
  EXPECT_GT(apart, 1e-3);
}

TEST(RopeTable, InF32IsTheOneInF64Rounded) {
  const RopeFrequencies frequencies{.theta = 1e6, .scaling = Llama3Scaling{}};
  const std::vector<float> narrow = rope_table<float>(9, 6, frequencies);
  const std::vector<double> wide = rope_table<double>(9, 6, frequencies);
  ASSERT_EQ(narrow.size(), 9u * 6u);
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(narrow[i], static_cast<float>(wide[i]));
  EXPECT_EQ(std::vector<float>(narrow.begin(), narrow.begin() + 6),
            (std::vector<float>{1, 1, 1, 0, 0, 0}));
}

TEST(RopeTable, RefusesWhatHasNoAngles) {
  expect_error(ErrorKind::invalid, {"a head of 7 numbers"}, [] { inverse_frequencies(7, {}); });
  expect_error(ErrorKind::invalid, {"theta is 0"}, [] { inverse_frequencies(8, {.theta = 0}); });
  expect_error(ErrorKind::invalid, {"llama3 scaling", "low below high"}, [] {
    inverse_frequencies(8, {.theta = 1e4, .scaling = Llama3Scaling{.low = 4, .high = 4}});
  });
}

}  // namespace
}  // namespace spool::testing
