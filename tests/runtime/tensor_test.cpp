// Tensors and their shapes, types and streams.

#include "spool/runtime/tensor.h"

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(Tensor, SlicesShareItsMemory) {
  CpuStream stream(1 << 20, 1);
  const std::vector<float> numbers{0, 1, 2, 3, 4, 5};
  const Tensor t = make_tensor<float>(Shape{3, 2}, numbers, stream);
  EXPECT_EQ(read<float>(t.slice({1, 3})), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(read<float>(t.slice({1, 1})).size(), 0u);
  EXPECT_FALSE(Tensor());
  EXPECT_FALSE(t.sole_owner() && Tensor(t).sole_owner());
}

TEST(Tensor, RefusesRowsAndTypesItDoesNotHave) {
  CpuStream stream(1 << 20, 1);
  const Tensor t({Shape{3, 2}}, stream);
  expect_error(ErrorKind::invalid, {"slice", "2", "4", "f32 (3, 2)"}, [&] {
    (void)t.slice({2, 4});
  });
  expect_error(ErrorKind::invalid, {"f32", "i32"}, [&] { (void)read<int32_t>(t); });
}

TEST(Shape, RefusesImpossibleExtents) {
  expect_error(ErrorKind::invalid, {"shape", "negative"}, [] { Shape{-1}; });
  expect_error(ErrorKind::invalid, {"shape", "5 dimensions", "at most 4"}, [] {
    Shape({1, 1, 1, 1, 1});
  });
  expect_error(ErrorKind::invalid, {"shape", "2^59"}, [] {
    Shape({int64_t{1} << 40, int64_t{1} << 40});
  });
}

TEST(Shape, SplitCoversARangeInEqualPiecesAndARest) {
  const std::vector<Range> pieces = split(10, 3);
  EXPECT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces.back().size(), 2);
}

TEST(MetaStream, CountsBytesAndHasNoValues) {
  MetaStream stream(Machine{});
  const Tensor t({Shape{1 << 20}}, stream);
  EXPECT_EQ(stream.memory().peak, size_t{4} << 20);
  expect_error(ErrorKind::device, {"meta", "no values"}, [&] { (void)read<float>(t); });
}

TEST(Device, IsParsedFromItsName) {
  EXPECT_EQ(parse_device("cuda:1"), (Device{DeviceType::cuda, 1}));
}

TEST(Device, RefusesUnknownNames) {
  for (const std::string bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:1x"}) {
    expect_error(ErrorKind::invalid, {"device '" + bad + "'"}, [&] { parse_device(bad); });
  }
  expect_error(ErrorKind::invalid, {"device cpu:1"}, [] {
    open_stream({DeviceType::cpu, 1}, 1024);
  });
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(float(bf16(1.0f + 0x1p-9f)), 1.0f);
  EXPECT_EQ(float(bf16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(float(bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(float(bf16(std::nanf("")))));
  EXPECT_TRUE(std::isinf(float(bf16(3.4e38f))));
}

uint16_t bits_of(float x) { return f16(x).bits; }

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(bits_of(1), 0x3c00);
  EXPECT_EQ(bits_of(-2), 0xc000);
  EXPECT_EQ(bits_of(1 + 0x1p-11f), 0x3c00);
  EXPECT_EQ(bits_of(1 + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(bits_of(1 + 0x1.002p-11f), 0x3c01);
  EXPECT_EQ(bits_of(65504), 0x7bff);
  EXPECT_EQ(bits_of(65519), 0x7bff);
  EXPECT_EQ(bits_of(65520), 0x7c00) << "infinity";
  EXPECT_EQ(bits_of(3e38f), 0x7c00);
}

TEST(Float16, HasSubnormals) {
  EXPECT_EQ(bits_of(0x1p-14f), 0x0400);
  EXPECT_EQ(bits_of(0x1p-24f), 0x0001);
  EXPECT_EQ(bits_of(0x1p-25f), 0x0000) << "a tie";
  EXPECT_EQ(bits_of(3 * 0x1p-25f), 0x0002) << "a tie";
  EXPECT_EQ(bits_of(-0x1p-24f), 0x8001);
  EXPECT_EQ(bits_of(-0.0f), 0x8000);
  EXPECT_EQ(bits_of(0x1.ff8p-15f), 0x03ff);
  EXPECT_EQ(bits_of(0x1.ffcp-15f), 0x0400) << "a tie, which rounds to a normal number";
}

TEST(Float16, EveryValueComesBackFromF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    f16 x;
    x.bits = static_cast<uint16_t>(bits);
    const float wide = x;
    if ((bits & 0x7fff) > 0x7c00) {
      ASSERT_TRUE(std::isnan(wide) && std::isnan(float(f16(wide)))) << bits;
    } else {
      ASSERT_EQ(bits_of(wide), bits);
    }
  }
  f16 x;
  x.bits = 0x7bff;
  EXPECT_EQ(float(x), 65504);
  x.bits = 0x83ff;
  EXPECT_EQ(float(x), -1023 * 0x1p-24f);
  x.bits = 0xfc00;
  EXPECT_EQ(float(x), -INFINITY);
}

}  // namespace
}  // namespace spool::testing
