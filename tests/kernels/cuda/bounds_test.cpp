// runs: emulator
// Under AddressSanitizer a kernel that leaves its tensor ends the program.

#include "spool/runtime/memory/poison.h"
#include "tests/kernels/cuda_testing.h"

#if SPOOL_CUDA_EMULATED
#include "spool/kernels/cuda/device.cuh"
#endif

namespace spool::testing {
namespace {

constexpr size_t budget = size_t{1} << 20;
constexpr int64_t one_granule = static_cast<int64_t>(Arena::granule / sizeof(float));

class Bounds : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (!bounds_are_checked) GTEST_SKIP() << "this needs AddressSanitizer";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

#if SPOOL_CUDA_EMULATED
__global__ void write_on_cuda(float* at) { *at = 1; }
#endif

void write(const View& x, int64_t at, Stream& stream) {
  float* place = x.as<float>() + at;
  if (stream.device().type == DeviceType::cpu) {
    static_cast<CpuStream&>(stream).enqueue([=] { *place = 1; });
  }
#if SPOOL_CUDA_EMULATED
  if (stream.device().type == DeviceType::cuda) {
    auto& cuda = static_cast<CudaStream&>(stream);
    cuda.enqueue("write",
                 [&] { cuda::launch_kernel(cuda, write_on_cuda, {.grid = 1, .block = 1}, place); });
  }
#endif
  stream.synchronize();
}

TEST_P(Bounds, AKernelMayWriteItsTensor) {
  const auto stream = open_stream({GetParam()}, budget);
  for (const int64_t n : {int64_t{1}, int64_t{3}, one_granule}) {
    const Tensor x = normal({n}, DType::f32, *stream, 1);
    write(x, n - 1, *stream);
    EXPECT_EQ(values(x).back(), 1);
  }
}

TEST_P(Bounds, OneElementPastATensorIsFound) {
  const auto stream = open_stream({GetParam()}, budget);
  for (const int64_t n : {int64_t{1}, int64_t{3}, one_granule}) {
    const Tensor x = normal({n}, DType::f32, *stream, 1);
    EXPECT_DEATH(write(x, n, *stream), "use-after-poison");
  }
}

TEST_P(Bounds, AWriteToFreedMemoryIsFound) {
  const auto stream = open_stream({GetParam()}, budget);
  View freed;
  {
    const Tensor x = normal({5}, DType::f32, *stream, 1);
    freed = x;
  }
  EXPECT_DEATH(write(freed, 0, *stream), "use-after-poison");
}

TEST_P(Bounds, WorkEnqueuedBeforeAFreeMayStillUseTheMemory) {
  const auto stream = open_stream({GetParam()}, budget);
  const Tensor last({Shape{300}, DType::f32}, *stream);
  for (int repeat = 0; repeat < 50; ++repeat) {
    const Tensor x({Shape{300 - repeat}, DType::f32}, *stream);
    launch(Fill{.out = x, .value = static_cast<float>(repeat)}, *stream);
    launch(Cast{.out = last.slice({0, 300 - repeat}), .in = x}, *stream);
  }
  EXPECT_EQ(values(last).front(), 49);
}

std::vector<DeviceType> devices() {
#if SPOOL_CUDA_EMULATED
  return {DeviceType::cpu, DeviceType::cuda};
#else
  return {DeviceType::cpu};
#endif
}

INSTANTIATE_TEST_SUITE_P(Devices, Bounds, ::testing::ValuesIn(devices()));

}  // namespace
}  // namespace spool::testing
