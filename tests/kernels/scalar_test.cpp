// runs: numbers
// The vectorised exponentials of the cpu kernels against the standard library in f64.

#include "spool/kernels/cpu/scalar.h"

#include <gtest/gtest.h>

#include <limits>

namespace spool {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// |y - wanted| in units of the last place of an f32 near wanted.
double ulps(float y, double wanted) {
  const int exponent = std::max(std::ilogb(wanted), -126);
  return std::fabs(static_cast<double>(y) - wanted) / std::ldexp(1.0, exponent - 23);
}

// Calls f for about two million floats between the positive numbers low and high, and negated.
template <class F>
void for_floats(float low, float high, F f) {
  const auto begin = std::bit_cast<uint32_t>(low), end = std::bit_cast<uint32_t>(high);
  for (uint32_t bits = begin; bits <= end; bits += 1021) {
    f(std::bit_cast<float>(bits));
    f(-std::bit_cast<float>(bits));
  }
}

TEST(Scalar, ExpIsWithinTwoUlps) {
  double worst = 0;
  for_floats(0, 88.72283f, [&](float x) {
    if (x >= -87.33654f) {
      worst = std::max(worst, ulps(cpu::exp(x), std::exp(static_cast<double>(x))));
    }
  });
  for_floats(1e-3f, 87.33654f, [&](float x) {
    worst = std::max(worst, ulps(cpu::exp(x), std::exp(static_cast<double>(x))));
  });
  EXPECT_LE(worst, 2);
  EXPECT_GT(worst, 0.4);  // else nothing was measured
}

TEST(Scalar, ExpOverflowsAndUnderflowsAtTheLimitsOfF32) {
  EXPECT_EQ(cpu::exp(0.0f), 1);
  EXPECT_EQ(cpu::exp(-0.0f), 1);
  EXPECT_EQ(cpu::exp(infinity), infinity);
  EXPECT_EQ(cpu::exp(-infinity), 0);
  EXPECT_EQ(cpu::exp(88.7229f), infinity);
  EXPECT_TRUE(std::isfinite(cpu::exp(88.72283f)));
  EXPECT_GE(cpu::exp(-87.33654f), std::numeric_limits<float>::min());
  EXPECT_EQ(cpu::exp(-87.3366f), 0);
  EXPECT_TRUE(std::isnan(cpu::exp(std::bit_cast<float>(0x7fc00155u))));
  for_floats(88.7229f, std::numeric_limits<float>::max(),
             [](float x) { ASSERT_EQ(cpu::exp(x), x > 0 ? infinity : 0) << x; });
}

TEST(Scalar, TanhIsWithinFourUlpsAndOdd) {
  double worst = 0;
  for_floats(1e-30f, std::numeric_limits<float>::max(), [&](float x) {
    worst = std::max(worst, ulps(cpu::tanh(x), std::tanh(static_cast<double>(x))));
    ASSERT_EQ(cpu::tanh(-x), -cpu::tanh(x)) << x;
  });
  EXPECT_LE(worst, 4);
  EXPECT_GT(worst, 0.4);
  EXPECT_EQ(cpu::tanh(0.0f), 0);
  EXPECT_EQ(cpu::tanh(infinity), 1);
  EXPECT_EQ(cpu::tanh(-infinity), -1);
  EXPECT_TRUE(std::isnan(cpu::tanh(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Scalar, LogIsWithinTwoUlps) {
  double worst = 0;
  for_floats(std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(),
             [&](float x) {
               if (x < 0) return;
               worst = std::max(worst, ulps(cpu::log(x), std::log(static_cast<double>(x))));
             });
  for_floats(0.5f, 2.0f, [&](float x) {
    if (x > 0) worst = std::max(worst, ulps(cpu::log(x), std::log(static_cast<double>(x))));
  });
  EXPECT_LE(worst, 2);
  EXPECT_GT(worst, 0.4);
}

TEST(Scalar, LogOfZeroInfinityAndNegativeNumbers) {
  EXPECT_EQ(cpu::log(1.0f), 0);
  EXPECT_EQ(cpu::log(0.0f), -infinity);
  EXPECT_EQ(cpu::log(infinity), infinity);
  EXPECT_TRUE(std::isnan(cpu::log(-1.0f)));
  EXPECT_TRUE(std::isnan(cpu::log(-infinity)));
  EXPECT_TRUE(std::isnan(cpu::log(std::bit_cast<float>(0x7fc00155u))));
}

}  // namespace
}  // namespace spool
