// runs: threads
// The cuda device: order of its work, two queues, captured graphs, and errors.

#include <numeric>

#include "spool/runtime/dlpack.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaStreams : public OnCuda {
 protected:
  static Numbers counted(size_t n, double from) {
    Numbers all(n);
    std::iota(all.begin(), all.end(), from);
    return all;
  }
  static Tensor filled(size_t n, double from, Stream& stream) {
    const Tensor t({Shape{static_cast<int64_t>(n)}}, stream);
    const Numbers all = counted(n, from);
    const std::vector<float> floats(all.begin(), all.end());
    write<float>(t, floats);
    return t;
  }
};

TEST_F(CudaStreams, ReadsBackWhatWasWritten) {
  const auto stream = cuda_stream();
  // None, a few, more than one staging buffer, and more than all of them.
  for (const size_t n : {0u, 1u, 1000u, 1u << 20, (1u << 20) + 3, 5u << 20}) {
    EXPECT_EQ(values(filled(n, 1, *stream)), counted(n, 1)) << n;
  }
}

TEST_F(CudaStreams, ManySmallUploadsKeepTheirBytes) {
  const auto stream = cuda_stream();
  constexpr size_t n = 1000;
  std::vector<Tensor> all;
  for (int i = 0; i < 3000; ++i) all.push_back(filled(n, i, *stream));
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(values(all[static_cast<size_t>(i)]), counted(n, i));
}

TEST_F(CudaStreams, FillsAndCopiesInOrder) {
  const auto stream = cuda_stream();
  const Tensor a = filled(1000, 0, *stream), b({Shape{1000}}, *stream);
  stream->copy(b.view().data(), a.view().data(), a.nbytes());
  launch(Fill{.out = a, .value = 7}, *stream);
  EXPECT_EQ(values(b), counted(1000, 0));
  EXPECT_EQ(values(a), Numbers(1000, 7.0));
  write_bytes(a, 0, a.nbytes(), [](std::span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
  });
  EXPECT_EQ(values(a), Numbers(1000, 0.0));
}

#if SPOOL_CUDA
TEST_F(CudaStreams, EventsOrderTwoQueues) {
  CudaStream first(0, on_both), second(first);
  EXPECT_EQ(&first.arena(), &second.arena());
  const Tensor x = filled(5000, 0, first), y({Shape{5000}}, first);
  for (int round = 0; round < 20; ++round) {
    launch(Fill{.out = x, .value = float(round)}, first);
    second.wait(first.record());
    second.copy(y.view().data(), x.view().data(), x.nbytes());
    first.wait(second.record());
    launch(Fill{.out = x, .value = -1}, first);
    launch(Add{.out = add_to(y), .a = x}, first);
    ASSERT_EQ(values(y), Numbers(5000, round - 1.0));
  }
}

TEST_F(CudaStreams, AReplayRepeatsTheCapturedWork) {
  CudaStream stream(0, on_both), second(stream);
  const Tensor x = filled(100, 0, stream), y({Shape{100}}, stream);
  launch(Fill{.out = y}, stream);
  const Graph graph = stream.capture([&] {
    launch(Add{.out = add_to(y), .a = x}, stream);
    second.wait(stream.record());
    second.copy(x.view().data(), y.view().data(), x.nbytes());
    stream.wait(second.record());
    launch(Scale{.out = x, .a = x, .factor = 2}, stream);
  });
  EXPECT_EQ(values(y), Numbers(100, 0.0)) << "a capture runs nothing";
  Numbers first = counted(100, 0), sum(100);
  for (int replay = 0; replay < 3; ++replay) {
    stream.replay(graph);
    for (size_t i = 0; i < 100; ++i) {
      sum[i] += first[i];
      first[i] = 2 * sum[i];
    }
  }
  EXPECT_EQ(values(x), first);
  EXPECT_EQ(values(y), sum);
}

// Memory of another program on the device, here of another stream, and whether it was freed.
struct Foreign {
  CudaStream stream{0, size_t{1} << 20};
  Tensor memory = Tensor({Shape{100}}, stream);
  bool freed = false;

  explicit Foreign(float value) {
    launch(Fill{.out = memory, .value = value}, stream);
    stream.synchronize();
  }
  Tensor lend(Stream& to) {
    const std::shared_ptr<void> owner(&freed, [](bool* f) { *f = true; });
    return Tensor::over(memory.view().data(), memory.spec(), to, owner);
  }
};

TEST_F(CudaStreams, ExternalMemoryOutlivesTheWorkOnIt) {
  Foreign foreign(3);
  CudaStream stream(0, on_both);
  const Tensor y({Shape{100}}, stream);
  launch(Add{.out = y, .a = foreign.lend(stream)}, stream);
#if SPOOL_CUDA_EMULATED  // whose work waits until someone waits for it
  EXPECT_FALSE(foreign.freed);
#endif
  EXPECT_EQ(values(y), Numbers(100, 3.0));
  EXPECT_TRUE(foreign.freed);
  EXPECT_EQ(stream.memory().external, 0u);
  EXPECT_EQ(stream.memory().external_peak, 400u);
}

TEST_F(CudaStreams, ExternalMemoryOutlivesAGraphThatReadsIt) {
  Foreign foreign(3);
  {
    CudaStream stream(0, on_both);
    const Tensor y({Shape{100}}, stream);
    launch(Fill{.out = y}, stream);
    const Graph graph =
        stream.capture([&] { launch(Add{.out = add_to(y), .a = foreign.lend(stream)}, stream); });
    stream.replay(graph);
    stream.replay(graph);
    EXPECT_EQ(values(y), Numbers(100, 6.0));
    EXPECT_FALSE(foreign.freed);
  }
  EXPECT_TRUE(foreign.freed);
}

TEST_F(CudaStreams, ATensorIsLentAndTakenBack) {
  CudaStream stream(0, on_both);
  CpuStream cpu(on_both, 1);
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor t({Shape{10, 3}, type}, stream);
    DLManagedTensor* const lent = to_dlpack(t);
    expect_error(ErrorKind::invalid, {"on cuda:0", "on the cpu"}, [&] { from_dlpack(lent, cpu); });
    const Tensor back = from_dlpack(lent, stream);
    EXPECT_EQ(back.spec(), t.spec());
    EXPECT_EQ(back.view().data(), t.view().data());
  }
  stream.synchronize();
  EXPECT_EQ(stream.memory().live, 0u);
}

TEST_F(CudaStreams, ACaptureRefusesUploadsReadsAndWaits) {
  CudaStream stream(0, on_both);
  const Tensor x = filled(4, 0, stream);
  const auto expect_refused = [&](std::string_view word, const std::function<void()>& work) {
    expect_error(ErrorKind::invalid, {word}, [&] { stream.capture(work); });
  };
  expect_refused("upload", [&] { filled(4, 0, stream); });
  expect_refused("read", [&] { values(x); });
  expect_refused("wait", [&] { stream.synchronize(); });
  expect_refused("already", [&] { stream.capture([] {}); });
  EXPECT_EQ(values(x), counted(4, 0)) << "the stream goes on";
}
#endif

TEST_F(CudaStreams, RefusesAnAbsentDevice) {
  expect_error(ErrorKind::device, {"device cuda:99"}, [] {
    open_stream({DeviceType::cuda, 99}, 1024);
  });
}

TEST(NoCuda, IsAnErrorThatNamesTheCpu) {
  if (there_is_cuda()) GTEST_SKIP() << "there is a CUDA device here";
  expect_error(ErrorKind::device, {"cuda", "use the device cpu"},
               [] { open_stream({DeviceType::cuda}, 1024); });
}

#if SPOOL_CUDA_EMULATED
// Machines whose device is missing or unsuitable.
class UnsuitableCuda : public ::testing::Test {
 protected:
  void TearDown() override { emulator::device() = {}; }
  static void expect_refused(ErrorKind kind, std::initializer_list<std::string_view> words,
                             int line = __builtin_LINE()) {
    expect_error(
        kind, words, [] { cuda_stream(); }, __FILE__, line);
  }
};

TEST_F(UnsuitableCuda, IsReportedWithoutADevice) {
  emulator::device().count = 0;
  expect_refused(ErrorKind::device, {"there is no CUDA device here", "cpu"});
}

TEST_F(UnsuitableCuda, IsReportedWithoutADriver) {
  emulator::device().driver = 0;
  expect_refused(ErrorKind::device, {"there is no NVIDIA driver here"});
}

TEST_F(UnsuitableCuda, IsReportedWithAnOldDriver) {
  emulator::device().driver = 11080;
  expect_refused(ErrorKind::device, {"CUDA 11.8", "CUDA 13.0"});
}

TEST_F(UnsuitableCuda, IsReportedWithTooLittleMemory) {
  emulator::device().bytes = on_both - 1;
  expect_refused(ErrorKind::memory, {"are available"});
}

TEST_F(UnsuitableCuda, IsReportedWithAnOldDevice) {
  emulator::device().major = 7;
  expect_refused(ErrorKind::device, {"compute capability 7.0", "8.0"});
}
#endif

}  // namespace
}  // namespace spool::testing
