#pragma once

// Helpers of the tests of the cuda device, real or emulated: a fixture that skips where there is
// none, and the comparison of its results with those of the cpu.

#include <functional>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cuda/stream.h"
#include "tests/kernels/kernel_testing.h"

#if SPOOL_CUDA_EMULATED
#include "tests/emulator/emulator.h"
#endif

namespace spool::testing {

constexpr size_t on_both = size_t{64} << 20;

inline const std::vector<DType> cuda_types{DType::f32, DType::bf16};

// A fixture whose tests are skipped without such a device.
class OnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!there_is_cuda()) GTEST_SKIP() << "there is no CUDA device here";
  }
};

inline std::unique_ptr<Stream> cuda_stream(size_t budget = on_both) {
  return open_stream({DeviceType::cuda}, budget);
}

// Whether all cases are to run: on a GPU, and by night on the emulator, where some take seconds.
inline bool has_every_case() {
#if SPOOL_CUDA_EMULATED
  return nightly();
#else
  return true;
#endif
}

// Runs work() on an emulated device with its threads in a random order, and by night in each other
// order, too.
inline void in_every_order(const std::function<void()>& work) {
#if SPOOL_CUDA_EMULATED
  using emulator::Order;
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    if (order != Order::random && !nightly()) continue;
    emulator::config().order = order;
    work();
  }
  emulator::config().order = Order::forward;
#else
  for (int repeat = 0; repeat < 3; ++repeat) work();
#endif
}

// Expects that work(stream) returns the same on cuda as on the cpu, up to rounding, and the same
// bits each time.
inline void expect_as_on_cpu(const std::function<Numbers(Stream&)>& work, double bound) {
  CpuStream cpu(on_both, 1);
  const Numbers wanted = work(cpu);
  Numbers first;
  in_every_order([&] {
    const auto stream = cuda_stream();
    const Numbers found = work(*stream);
    EXPECT_LT(difference(found, wanted), bound);
    if (first.empty()) first = found;
    EXPECT_EQ(found, first) << "not the same bits again";
  });
}

}  // namespace spool::testing
