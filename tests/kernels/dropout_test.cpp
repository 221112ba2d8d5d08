// Dropout on the cpu against the definition of its mask.

#include "spool/kernels/dropout.h"

#include "spool/runtime/random.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

constexpr float p = 0.3f;
constexpr uint32_t node = 5;

Tensor some_random(Stream& stream) { return integers({4}, {12, -34, 56, 7}, stream); }

// Whether element i is kept, by the definition in the header.
bool is_kept(int64_t i) {
  const PhiloxCounter words =
      philox({12, static_cast<uint32_t>(-34)}, {static_cast<uint32_t>(i / 4), node, 56, 7});
  return uniform(words[static_cast<size_t>(i % 4)]) >= p;
}

TEST(Dropout, FollowsItsFormula) {
  CpuStream stream(64 << 20, 2);
  const Tensor random = some_random(stream);
  for (const DType t : floating) {
    for (const int64_t n : {1, 5, 17, 1000, 40001}) {
      for (const int64_t first : {int64_t{0}, int64_t{3}, (int64_t{1} << 33) + 2}) {
        SCOPED_TRACE(sentence(name(t), ' ', n, " from ", first));
        const Tensor x = normal({n}, t, stream, 1);
        Numbers wanted = values(x);
        for (int64_t i = 0; i < n; ++i) {
          wanted[static_cast<size_t>(i)] *=
              is_kept(first + i) ? 1 / (1 - static_cast<double>(p)) : 0;
        }
        expect_gradient({{n}, t}, stream, wanted, [&](const Grad& y) {
          launch(Dropout{.y = y, .x = x, .random = random, .node = node, .first = first, .p = p},
                 stream);
        });
      }
    }
  }
}

TEST(Dropout, KeepsTheMeanAndDropsItsShare) {
  CpuStream stream(64 << 20, 2);
  const int64_t n = 1 << 20;
  const Tensor x = unset({n}, DType::f32, stream), y = unset({n}, DType::f32, stream);
  launch(Fill{.out = x, .value = 1}, stream);
  launch(Dropout{.y = y, .x = x, .random = some_random(stream), .node = node, .p = p}, stream);
  double sum = 0, dropped = 0;
  for (const double value : values(y)) {
    sum += value;
    dropped += value == 0;
  }
  EXPECT_NEAR(sum / static_cast<double>(n), 1, 0.003);  // 5 standard deviations
  EXPECT_NEAR(dropped / static_cast<double>(n), p, 0.003);
}

TEST(Dropout, IsTheIdentityAtProbabilityZero) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    const Tensor x = normal({1001}, t, stream, 1), y = unset({1001}, t, stream);
    launch(Dropout{.y = y, .x = x, .random = some_random(stream), .p = 0}, stream);
    EXPECT_EQ(values(y), values(x));
  }
}

TEST(Dropout, AChunkHasTheBitsOfTheWhole) {
  CpuStream stream(64 << 20, 2);
  const Tensor random = some_random(stream);
  for (const DType t : floating) {
    const Tensor x = normal({301, 17}, t, stream, 1);
    const Tensor whole = unset(x.shape(), t, stream), parts = unset(x.shape(), t, stream);
    launch(Dropout{.y = whole, .x = x, .random = random, .node = node, .p = p}, stream);
    for (const Range rows : split(301, 100)) {
      launch(Dropout{.y = parts.slice(rows),
                     .x = x.slice(rows),
                     .random = random,
                     .node = node,
                     .first = rows.begin * 17,
                     .p = p},
             stream);
    }
    EXPECT_EQ(values(parts), values(whole));
  }
}

TEST(Dropout, EveryKeyAndCounterChangesTheMask) {
  CpuStream stream(64 << 20, 2);
  const Tensor x = normal({1000}, DType::f32, stream, 1);
  std::vector<Numbers> masks;
  const auto drop = [&](const std::vector<int32_t>& random, uint32_t which) {
    const Tensor y = unset({1000}, DType::f32, stream);
    launch(
        Dropout{.y = y, .x = x, .random = integers({4}, random, stream), .node = which, .p = 0.5f},
        stream);
    masks.push_back(values(y));
  };
  drop({1, 2, 3, 4}, 0);
  drop({1, 2, 3, 4}, 1);
  for (size_t i = 0; i < 4; ++i) {
    std::vector<int32_t> random{1, 2, 3, 4};
    random[i] = 9;
    drop(random, 0);
  }
  for (size_t i = 0; i < masks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(masks[i], masks[j]);
  }
}

TEST(Dropout, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Tensor x = normal({100003}, t, stream, 1), y = unset({100003}, t, stream);
      launch(Dropout{.y = y, .x = x, .random = some_random(stream), .first = 1, .p = p}, stream);
      return values(y);
    });
  }
}

}  // namespace
}  // namespace spool::testing
