// runs: threads
// Tensors taken over from other programs and lent to them.  dlpack_test.py does the same with NumPy
// and PyTorch.

#include "spool/runtime/dlpack.h"

#include <thread>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>

namespace spool::testing {
namespace {

// What another program lends: (2, 3) floats, and whether it was told that their use is over.
struct Lender {
  std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  std::vector<int64_t> shape = {2, 3}, strides = {3, 1};
  DLManagedTensor managed = {};
  int returned = 0;

  Lender() {
    managed.dl_tensor.data = memory.data();
    managed.dl_tensor.device = {kDLCPU, 0};
    managed.dl_tensor.dtype = {kDLFloat, 32, 1};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* m) { ++static_cast<Lender*>(m->manager_ctx)->returned; };
  }
  DLManagedTensor* lend() {
    managed.dl_tensor.ndim = static_cast<int>(shape.size());
    managed.dl_tensor.shape = shape.data();
    managed.dl_tensor.strides = strides.empty() ? nullptr : strides.data();
    return &managed;
  }
};

TEST(Dlpack, TakesOverATensorAndReturnsItOnce) {
  CpuStream stream(1 << 20, 1);
  Lender lender;
  {
    const Tensor t = from_dlpack(lender.lend(), stream);
    EXPECT_EQ(t.spec(), (Spec{Shape{2, 3}}));
    EXPECT_EQ(read<float>(t), lender.memory);
    EXPECT_EQ(t.view().data(), reinterpret_cast<std::byte*>(lender.memory.data()));
    EXPECT_EQ(stream.memory().external, 24u);
    EXPECT_EQ(lender.returned, 0);
  }
  EXPECT_EQ(lender.returned, 1);
}

TEST(Dlpack, TakesOverWhatIsContiguousInEffect) {
  CpuStream stream(1 << 20, 1);
  Lender lender;
  const auto taken = [&](std::vector<int64_t> shape, std::vector<int64_t> strides,
                         uint64_t offset = 0) {
    lender.shape = std::move(shape);
    lender.strides = std::move(strides);
    lender.managed.dl_tensor.byte_offset = offset;
    return read<float>(from_dlpack(lender.lend(), stream));
  };
  EXPECT_EQ(taken({2, 3}, {}), lender.memory);
  EXPECT_EQ(taken({2, 1, 3}, {3, 77, 1}), lender.memory) << "a stride that nothing uses";
  EXPECT_EQ(taken({2, 2}, {2, 1}, 8), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(taken({0, 3}, {5, 5}).size(), 0u);
  lender.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(taken({0}, {}).size(), 0u);
  EXPECT_EQ(lender.returned, 5);
}

TEST(Dlpack, RefusesTheRestAndLeavesItToTheCaller) {
  CpuStream stream(1 << 20, 1);
  const auto refused = [&](std::initializer_list<std::string_view> words,
                           const std::function<void(Lender&)>& change) {
    Lender lender;
    change(lender);
    expect_error(ErrorKind::invalid, words, [&] { from_dlpack(lender.lend(), stream); });
    EXPECT_EQ(lender.returned, 0);
    EXPECT_EQ(stream.memory().external, 0u);
  };
  const auto of_type = [](uint8_t code, uint8_t bits, uint16_t lanes) {
    return [=](Lender& l) { l.managed.dl_tensor.dtype = {code, bits, lanes}; };
  };
  refused({"dimension 1 of (3, 2)", "3 apart", "ascontiguousarray", "contiguous()"}, [](Lender& l) {
    l.shape = {3, 2};
    l.strides = {1, 3};
  });
  refused({"int64", "f64, f32, bf16", "convert"}, of_type(kDLInt, 64, 1));
  refused({"complex64"}, of_type(kDLComplex, 64, 1));
  refused({"vectors of 2 float32"}, of_type(kDLFloat, 32, 2));
  refused({"unknown type", "8"}, of_type(99, 8, 1));
  refused({"5 dimensions", "4"}, [](Lender& l) {
    l.shape = {1, 1, 1, 2, 3};
    l.strides = {};
  });
  refused({"on cuda:1", "on the cpu"}, [](Lender& l) {
    l.managed.dl_tensor.device = {kDLCUDA, 1};
  });
  refused({"type 10"}, [](Lender& l) { l.managed.dl_tensor.device = {kDLROCM, 0}; });
  refused({"multiple of 4"}, [](Lender& l) { l.managed.dl_tensor.byte_offset = 1; });
  refused({"negative"}, [](Lender& l) { l.shape = {-1, 3}; });
  refused({"null"}, [](Lender& l) { l.managed.dl_tensor.data = nullptr; });
  expect_error(ErrorKind::invalid, {"no tensor"}, [&] { from_dlpack(nullptr, stream); });
}

TEST(Dlpack, CountsBytesOnMetaForAnyDevice) {
  MetaStream meta(Machine{});
  Lender lender;
  lender.managed.dl_tensor.device = {kDLCUDA, 3};
  const Tensor t = from_dlpack(lender.lend(), meta);
  EXPECT_EQ(meta.memory().external, 24u);
  expect_error(ErrorKind::device, {"dlpack", "meta", "no values"}, [&] { to_dlpack(t); });
}

TEST(Dlpack, LendsTheMemoryUntilItIsReturned) {
  CpuStream stream(1 << 20, 1);
  Tensor t = make_tensor<float>(Shape{3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}, stream);
  DLManagedTensor* const lent = to_dlpack(t.slice({1, 3}));
  const DLTensor& d = lent->dl_tensor;
  EXPECT_EQ(static_cast<const float*>(d.data)[0], 3);
  EXPECT_EQ(std::vector<int64_t>(d.shape, d.shape + d.ndim), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(std::vector<int64_t>(d.strides, d.strides + d.ndim), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(d.device.device_type, kDLCPU);
  t = {};
  EXPECT_GT(stream.memory().live, 0u);
  lent->deleter(lent);
  EXPECT_EQ(stream.memory().live, 0u);
  expect_error(ErrorKind::invalid, {"dlpack", "absent"}, [] { to_dlpack(Tensor()); });
}

TEST(Dlpack, WaitsForTheStreamsWork) {
  CpuStream stream(1 << 20, 1);
  const Tensor t({Shape{1}}, stream);
  stream.enqueue([data = t.view().as<float>()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    *data = 5;
  });
  DLManagedTensor* const lent = to_dlpack(t);
  EXPECT_EQ(*static_cast<const float*>(lent->dl_tensor.data), 5);
  lent->deleter(lent);
}

TEST(Dlpack, ATensorReturnedOnAnotherThreadIsFreedOnItsOwn) {
  auto stream = std::make_unique<CpuStream>(1 << 20, 1);
  DLManagedTensor* const lent = to_dlpack(Tensor({Shape{4}}, *stream));
  std::thread([lent] { lent->deleter(lent); }).join();
  EXPECT_GT(stream->memory().live, 0u);
  stream->synchronize();
  EXPECT_EQ(stream->memory().live, 0u);
  DLManagedTensor* const last = to_dlpack(Tensor({Shape{4}}, *stream));
  std::thread([last] { last->deleter(last); }).join();
  stream.reset();  // frees it, too
}

TEST(Dlpack, EveryTypeGoesThereAndBack) {
  CpuStream stream(1 << 20, 1);
  for (const DType type : enumerators<DType>()) {
    const Tensor t({Shape{2, 3}, type}, stream);
    const Tensor back = from_dlpack(to_dlpack(t), stream);
    EXPECT_EQ(back.spec(), t.spec());
    EXPECT_EQ(back.view().data(), t.view().data());
  }
  EXPECT_EQ(stream.memory().live, 0u);
}

}  // namespace
}  // namespace spool::testing
#endif
