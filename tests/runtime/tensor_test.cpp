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

}  // namespace
}  // namespace spool::testing
