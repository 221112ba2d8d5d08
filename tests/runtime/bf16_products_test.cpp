// What a stream of a cpu says about products of bf16.

#include "spool/runtime/cpu/bf16_products.h"

#include <gtest/gtest.h>

#include <variant>

#include "spool/runtime/stream.h"

namespace spool {
namespace {

TEST(Bf16Products, AreTheStreams) {
  const auto stream = open_stream({DeviceType::cpu}, Arena::granule, 1);
  EXPECT_EQ(std::get<CpuArchitecture>(stream->architecture()).bf16_products, bf16_products());
}

#if defined(__x86_64__)
TEST(Bf16Products, AreThoseOfF32OnAProcessorWithoutThem) {
  if (__builtin_cpu_supports("avx512bf16")) GTEST_SKIP() << "this processor has them";
  EXPECT_EQ(bf16_products(), Bf16Products::as_f32);
}
#endif

}  // namespace
}  // namespace spool
