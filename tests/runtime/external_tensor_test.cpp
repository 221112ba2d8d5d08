// runs: threads
// Tensors over memory allocated outside Spool, and the value of a tensor of one element.

#include <chrono>
#include <thread>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Floats = std::vector<float>;

// An owner that notes its end, and on which thread.
struct Owner {
  std::thread::id* ended_on;
  explicit Owner(std::thread::id* where) : ended_on(where) {}
  ~Owner() { *ended_on = std::this_thread::get_id(); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
};

class ExternalTensor : public ::testing::Test {
 protected:
  CpuStream stream{1 << 20, 1};
  Floats memory = {1, 2, 3, 4, 5, 6};
  std::thread::id ended_on = {};

  Tensor over(Stream& on) {
    return Tensor::over(memory.data(), {Shape{3, 2}}, on, std::make_shared<Owner>(&ended_on));
  }
  bool ended() const { return ended_on != std::thread::id(); }
};

TEST_F(ExternalTensor, IsTheMemoryAndOutsideTheBudget) {
  {
    const Tensor t = over(stream);
    EXPECT_EQ(read<float>(t), memory);
    EXPECT_EQ(read<float>(t.slice({2, 3}).reshape({2})), (Floats{5, 6}));
    write<float>(t.slice({0, 1}), Floats{7, 8});
    stream.synchronize();
    EXPECT_EQ(memory[0], 7);
    EXPECT_TRUE(t.is_external());
    EXPECT_FALSE(t.sole_owner()) << "nothing may write over it";
    const Tensor other = over(stream);
    EXPECT_EQ(stream.memory().external, 48u);
  }
  EXPECT_EQ(stream.memory().external, 0u);
  EXPECT_EQ(stream.memory().external_peak, 48u);
  EXPECT_EQ(stream.memory().peak, 0u);
  EXPECT_TRUE(ended());
  EXPECT_FALSE(Tensor({Shape{2}}, stream).is_external());
}

TEST_F(ExternalTensor, ItsOwnerOutlivesTheWorkThatWasEnqueued) {
  std::atomic<bool> go = false, read_alive = false;
  {
    const Tensor t = over(stream);
    stream.enqueue([&] {
      while (!go) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      read_alive = ended_on == std::thread::id();
    });
  }
  EXPECT_FALSE(ended());
  go = true;
  stream.synchronize();
  EXPECT_TRUE(read_alive);
  EXPECT_EQ(ended_on, std::this_thread::get_id()) << "not on the stream's own thread";
}

TEST_F(ExternalTensor, ItsOwnerEndsWithAStreamThatFailedOrWasClosed) {
  for (const bool fails : {true, false}) {
    ended_on = {};
    std::atomic<bool> go = false;
    auto own = std::make_unique<CpuStream>(1 << 20, 1);
    {
      const Tensor t = over(*own);
      own->enqueue([&go, fails] {
        while (!go) std::this_thread::yield();
        if (fails) fail(ErrorKind::invalid, "as the test wants");
      });
    }
    EXPECT_FALSE(ended());
    go = true;
    if (fails) {
      expect_error(ErrorKind::invalid, {"as the test wants"}, [&] { own->synchronize(); });
      EXPECT_TRUE(ended());
    }
    own.reset();
    EXPECT_TRUE(ended());
  }
}

// An owner's destructor may free tensors of the same stream.
TEST_F(ExternalTensor, ItsOwnerMayHaveTensors) {
  const auto owner = std::make_shared<Tensor>(over(stream));
  { const Tensor t = Tensor::over(memory.data(), {Shape{3}}, stream, owner); }
  EXPECT_EQ(stream.memory().external, 24u);
  *owner = {};
  EXPECT_EQ(stream.memory().external, 0u);
}

TEST_F(ExternalTensor, CountsTheSameBytesOnMeta) {
  MetaStream meta(Machine{});
  {
    const Tensor t = Tensor::over(nullptr, {Shape{3, 2}}, meta);
    EXPECT_TRUE(t);
    EXPECT_EQ(meta.memory().external, 24u);
  }
  EXPECT_EQ(meta.memory().external, 0u);
  EXPECT_EQ(meta.memory().external_peak, 24u);
  EXPECT_EQ(meta.memory().peak, 0u);
}

TEST_F(ExternalTensor, RefusesAddressesThatCannotBe) {
  const Label label{.name = "batch"};
  expect_error(ErrorKind::invalid, {"address of batch, f32 (3, 2)", "null"}, [&] {
    Tensor::over(nullptr, {Shape{3, 2}}, stream, nullptr, label);
  });
  auto* const bytes = reinterpret_cast<std::byte*>(memory.data());
  expect_error(ErrorKind::invalid, {"batch", "multiple of 4 bytes", "copy"},
               [&] { Tensor::over(bytes + 2, {Shape{2}}, stream, nullptr, label); });
  EXPECT_TRUE(Tensor::over(bytes + 2, {Shape{2}, DType::bf16}, stream));
  EXPECT_TRUE(Tensor::over(nullptr, {Shape{0, 2}}, stream));
}

TEST(Item, IsTheValueOfOneElement) {
  CpuStream stream(1 << 20, 1);
  const std::vector<double> wide{0.1};
  EXPECT_EQ(item(make_tensor<double>({}, wide, stream)), 0.1);
  EXPECT_EQ(item(make_tensor<float>({1}, Floats{0.1f}, stream)), 0.1f);
  EXPECT_EQ(item(make_tensor<bf16>({1, 1}, std::vector<bf16>{bf16(1.5f)}, stream)), 1.5);
  EXPECT_EQ(item(make_tensor<f16>({1}, std::vector<f16>{f16(0x1p-24f)}, stream)), 0x1p-24);
}

TEST(Item, RefusesTheRest) {
  CpuStream stream(1 << 20, 1);
  MetaStream meta(Machine{});
  expect_error(ErrorKind::invalid, {"absent tensor", "no memory"}, [] { item(Tensor()); });
  expect_error(ErrorKind::invalid, {"f32 (2, 3) has 6 elements", "read()"}, [&] {
    item(Tensor({Shape{2, 3}}, stream));
  });
  expect_error(ErrorKind::invalid, {"i32 (1)", "not of a floating type"}, [&] {
    item(Tensor({Shape{1}, DType::i32}, stream));
  });
  expect_error(ErrorKind::device, {"f32 (1)", "meta", "no values"},
               [&] { item(Tensor({Shape{1}}, meta)); });
}

}  // namespace
}  // namespace spool::testing
