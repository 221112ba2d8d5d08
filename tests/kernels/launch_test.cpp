// runs: threads
// Kernels launched on a stream whose work runs on the caller's thread, or on its own.

#include "spool/kernels/launch.h"

#include <thread>

#include "spool/kernels/bias.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/gelu.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/environment.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(Launch, InlineHasTheSameBitsOnTheCallersThread) {
  const auto total_of = [](const std::string& in_line) {
    const EnvironmentVariable variable("SPOOL_CPU_INLINE", in_line);
    CpuStream stream(1 << 20, 3);
    const Tensor a = normal({130, 70}, DType::f32, stream, 1);
    const Tensor sum({Shape{130, 70}}, stream), active({Shape{130, 70}}, stream);
    const Tensor total({Shape{70}}, stream);
    launch(Add{.out = sum, .a = a, .b = a}, stream);
    launch(GeluForward{.y = active, .x = sum}, stream);
    launch(BiasBackward{.dbias = total, .dy = active}, stream);
    stream.wait(stream.record());
    std::thread::id worker;
    stream.enqueue([&worker] { worker = std::this_thread::get_id(); });
    if (in_line == "0") stream.synchronize();
    EXPECT_EQ(worker == std::this_thread::get_id(), in_line == "1");
    return values(total);
  };
  EXPECT_EQ(total_of("1"), total_of("0"));
}

}  // namespace
}  // namespace spool::testing
