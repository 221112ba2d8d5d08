// runs: threads
// Streams of two devices in one process: all that a stream makes is of its own device, whatever
// device the thread last worked with.

#include <thread>

#include "spool/kernels/matmul.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/trace.h"
#include "tests/kernels/attention_testing.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class TwoCudaDevices : public OnCuda {
 protected:
  void SetUp() override {
    if (cuda_device_count() < 2) GTEST_SKIP() << "there is no CUDA device here, or only one";
  }
};

#if SPOOL_CUDA
// Makes the other device the thread's current one.
void look_away_from(const Stream& stream) { cuda_device(1 - stream.device().index); }

// A product by cuBLASLt, and an upload through all of the staging memory.
Numbers products(Stream& stream) {
  const auto looks_away = [&](const auto& work) {
    look_away_from(stream);
    return work();
  };
  constexpr int64_t n = 1 << 20;
  const std::vector<float> ones(n, 1);
  Numbers all;
  for (int i = 0; i < 3; ++i) {
    const Tensor many({Shape{n}}, stream);
    looks_away([&] { write<float>(many, ones); });
    looks_away([&] { launch(Scale{.out = many, .a = many, .factor = 2}, stream); });
    all.push_back(looks_away([&] { return values(many).back(); }));
  }
  const Tensor a = normal({16, 32}, DType::f32, stream, 1);
  const Tensor b = normal({32, 16}, DType::f32, stream, 2), c = unset({16, 16}, DType::f32, stream);
  looks_away([&] { launch(Matmul{.c = c, .a = a, .b = b}, stream); });
  append(all, c);
  return all;
}

// A second queue, a graph and an event, on memory lent by another owner.
Numbers queues(CudaStream& stream) {
  look_away_from(stream);
  CudaStream second(stream);
  const Tensor x = normal({100}, DType::f32, stream, 1), y({Shape{100}}, stream);
  bool freed = false;
  {
    const std::shared_ptr<void> owner(&freed, [](bool* f) { *f = true; });
    const Tensor lent = Tensor::over(x.view().data(), x.spec(), stream, owner);
    launch(Add{.out = y, .a = lent}, stream);
    look_away_from(stream);
  }
  look_away_from(stream);
  const Graph graph = stream.capture([&] {
    launch(Add{.out = add_to(y), .a = x}, stream);
    look_away_from(stream);
    second.wait(stream.record());
    second.copy(x.view().data(), y.view().data(), x.nbytes());
    stream.wait(second.record());
  });
  look_away_from(stream);
  stream.replay(graph);
  look_away_from(stream);
  const auto host = stream.host_memory(x.nbytes());
  second.wait(stream.record());
  look_away_from(stream);
  second.copy_out(host.get(), x.view().data(), x.nbytes());
  look_away_from(stream);
  second.synchronize();
  Numbers all = values(y);
  EXPECT_TRUE(freed);
  const auto* numbers = reinterpret_cast<const float*>(host.get());
  all.insert(all.end(), numbers, numbers + 100);
  return all;
}

// Kernels with more shared memory than one has without asking, and those of cuDNN.
Numbers attention(Stream& stream) {
  Numbers all;
  for (const DType type : cuda_types) {
    const AttentionCase c{1, 40, 2, 1, 64};
    const AttentionTensors t{
        .qkv = normal(c.qkv(), type, stream, 1),
        .dy = normal(c.y(), type, stream, 2),
        .y = unset(c.y(), type, stream),
        .lse = unset({c.B, c.H, c.T}, DType::f32, stream),
        .dqkv = unset(c.qkv(), type, stream),
    };
    look_away_from(stream);
    t.forward(c, c.scale());
    look_away_from(stream);
    t.backward(c, c.scale(), t.dqkv);
    for (const Tensor& result : {t.y, t.dqkv}) append(all, result);
  }
  return all;
}

TEST_F(TwoCudaDevices, AreUsedByTurns) {
  CudaStream first(0, on_both), second(1, on_both);
  EXPECT_EQ(first.device().index, 0);
  EXPECT_EQ(second.device().index, 1);
  EXPECT_NE(first.native(), second.native());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(products(first), products(second));
    EXPECT_EQ(queues(first), queues(second));
    EXPECT_EQ(attention(first), attention(second));
  }
}

TEST_F(TwoCudaDevices, AreUsedFromOneThreadEach) {
  const auto work = [](int index) {
    CudaStream stream(index, on_both);
    look_away_from(stream);
    return products(stream);
  };
  Numbers of_first, of_second;
  std::thread([&] { of_first = work(0); }).join();  // the emulated one takes calls by turns
  std::thread([&] { of_second = work(1); }).join();
  EXPECT_EQ(of_first, of_second);
}

// The times of both, and what they leave when they end in the order in which they began.
TEST_F(TwoCudaDevices, AreTracedAndEnd) {
  auto first = std::make_unique<CudaStream>(0, on_both);
  auto second = std::make_unique<CudaStream>(1, on_both);
  const std::shared_ptr<Trace> traces[2] = {std::make_shared<Trace>(), std::make_shared<Trace>()};
  first->trace(traces[0]);
  second->trace(traces[1]);
  for (int round = 0; round < 3; ++round) {
    for (CudaStream* stream : {first.get(), second.get()}) {
      const Tensor x({Shape{100}}, *stream);
      look_away_from(*stream);
      launch(Fill{.out = x, .value = 1}, *stream);
    }
  }
  first->synchronize();
  second->synchronize();
  for (const auto& trace : traces) EXPECT_EQ(trace->spans().size(), 3u);
  first.reset();
  second.reset();
}

// The times are on one clock, whichever device the work ran on.
TEST_F(TwoCudaDevices, ShareATrace) {
  CudaStream first(0, on_both), second(1, on_both);
  const auto trace = std::make_shared<Trace>();
  for (CudaStream* stream : {&first, &second, &first}) {
    stream->trace(trace);
    const Tensor x({Shape{100}}, *stream);
    look_away_from(*stream);
    launch(Fill{.out = x, .value = 1}, *stream);
    stream->synchronize();
  }
  const std::vector<TraceSpan> spans = trace->spans();
  ASSERT_EQ(spans.size(), 3u);
  constexpr double hour = 3600;
  for (const TraceSpan& span : spans) {
    EXPECT_GE(span.begin, 0);
    EXPECT_LE(span.begin, span.end);
    EXPECT_LT(span.end, hour);
  }
}

#if SPOOL_CUDA_EMULATED
// On a GPU a context takes some hundred MB, and is refused where another program has the device.
TEST(OneOfTwoCudaDevices, LeavesTheOtherAlone) {
  if (emulator::has_context(0)) GTEST_SKIP() << "another suite of this process used the device";
  CudaStream stream(1, on_both);
  const Tensor x({Shape{100}}, stream);
  launch(Fill{.out = x, .value = 3}, stream);
  EXPECT_EQ(values(x), Numbers(100, 3.0));
  EXPECT_FALSE(emulator::has_context(0));
  EXPECT_TRUE(emulator::has_context(1));
}
#endif
#endif

}  // namespace
}  // namespace spool::testing
