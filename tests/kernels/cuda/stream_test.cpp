// The cuda device: memory that comes and goes in order, two queues, graphs, and what it refuses.

#include <numeric>

#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaStreamTest : public OnCuda {
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

TEST_F(CudaStreamTest, ReadsBackWhatWasWritten) {
  const auto stream = cuda_stream();
  // Nothing, little, more than the staging memory holds at once, and more than it holds in all.
  for (const size_t n : {0u, 1u, 1000u, 1u << 20, (1u << 20) + 3, 5u << 20}) {
    EXPECT_EQ(values(filled(n, 1, *stream)), counted(n, 1)) << n;
  }
}

TEST_F(CudaStreamTest, ManySmallUploadsKeepTheirBytes) {
  const auto stream = cuda_stream();
  constexpr size_t n = 1000;
  std::vector<Tensor> all;
  for (int i = 0; i < 3000; ++i) all.push_back(filled(n, i, *stream));
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(values(all[static_cast<size_t>(i)]), counted(n, i));
}

TEST_F(CudaStreamTest, FillsAndCopiesInOrder) {
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
TEST_F(CudaStreamTest, TwoQueuesAreOrderedByEvents) {
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

TEST_F(CudaStreamTest, AGraphIsWhatWasRecorded) {
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
  EXPECT_EQ(values(y), Numbers(100, 0.0)) << "recording runs nothing";
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

TEST_F(CudaStreamTest, AGraphHasNeitherUploadsNorReads) {
  CudaStream stream(0, on_both);
  const Tensor x = filled(4, 0, stream);
  const auto recorded = [&](auto work) {
    return error_of([&] { stream.capture([&] { work(); }); });
  };
  EXPECT_TRUE(contains(recorded([&] { filled(4, 0, stream); }), "upload"));
  EXPECT_TRUE(contains(recorded([&] { values(x); }), "read"));
  EXPECT_TRUE(contains(recorded([&] { stream.synchronize(); }), "wait"));
  EXPECT_TRUE(contains(recorded([&] { stream.capture([] {}); }), "captured already"));
  EXPECT_EQ(values(x), counted(4, 0)) << "the stream goes on";
}
#endif

TEST_F(CudaStreamTest, RefusesMoreMemoryThanThereIs) {
  const std::string error = error_of([] { cuda_stream(size_t{1} << 50); });
  EXPECT_TRUE(contains(error, "are available; use a smaller memory budget")) << error;
}

TEST_F(CudaStreamTest, RefusesADeviceThatIsNotThere) {
  const std::string error = error_of([] { open_stream({DeviceType::cuda, 99}, 1024); });
  EXPECT_TRUE(contains(error, "device cuda:99: there")) << error;
}

TEST(NoCuda, IsSaidInASentence) {
  if (there_is_cuda()) GTEST_SKIP() << "there is a CUDA device here";
  const std::string error = error_of([] { open_stream({DeviceType::cuda}, 1024); });
  EXPECT_TRUE(contains(error, "use the device cpu")) << error;
}

#if SPOOL_CUDA_EMULATED
class CudaDeviceThere : public ::testing::Test {
 protected:
  void TearDown() override { emulator::device() = {}; }
  static std::string error() {
    return error_of([] { cuda_stream(); });
  }
};

TEST_F(CudaDeviceThere, IsNone) {
  emulator::device().count = 0;
  EXPECT_TRUE(contains(error(), "there is no CUDA device here; use the device cpu")) << error();
}

TEST_F(CudaDeviceThere, HasNoDriver) {
  emulator::device().driver = 0;
  EXPECT_TRUE(contains(error(), "there is no NVIDIA driver here")) << error();
}

TEST_F(CudaDeviceThere, HasAnOldDriver) {
  emulator::device().driver = 11080;
  EXPECT_TRUE(contains(error(), "is for CUDA 11.8, and this build needs at least CUDA 13.0"))
      << error();
}

TEST_F(CudaDeviceThere, HasTooLittleMemory) {
  emulator::device().bytes = on_both - 1;
  EXPECT_TRUE(contains(error(), "are available; use a smaller memory budget")) << error();
}

TEST_F(CudaDeviceThere, IsAnOldOne) {
  emulator::device().major = 7;
  EXPECT_TRUE(contains(error(), "compute capability 7.0, and Spool's kernels need at least 8.0"))
      << error();
}
#endif

}  // namespace
}  // namespace spool::testing
