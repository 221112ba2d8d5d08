// The emulated device's clock: work takes the time that a test says, and events tell it.

#include "spool/kernels/elementwise.h"
#include "spool/kernels/launch.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

using namespace std::chrono_literals;

class EmulatedDeviceClock : public ::testing::Test {
 protected:
  EmulatedDeviceClock() {
    emulator::device_clock() = {.time_of = [](const std::string& name) -> emulator::Duration {
                                  return name == "fill" ? 50us : name == "add" ? 20us : 0us;
                                },
                                .event = 3us};
  }
  ~EmulatedDeviceClock() override { emulator::device_clock() = {}; }

  void run() {
    launch(Fill{.out = sum_, .value = 1}, *stream_);
    launch(Add{.out = sum_, .a = sum_, .b = sum_}, *stream_);
  }
  // What the clock advances by while the work runs.
  emulator::Duration time_of(const std::function<void()>& work) {
    stream_->synchronize();
    const emulator::Duration before = emulator::device_clock().now;
    work();
    stream_->synchronize();
    return emulator::device_clock().now - before;
  }

  std::unique_ptr<Stream> stream_ = cuda_stream();
  Tensor sum_{{Shape{8}, DType::f32}, *stream_};
};

TEST_F(EmulatedDeviceClock, AdvancesByTheWorkOfAStreamAndOfAGraph) {
  EXPECT_EQ(time_of([&] { run(); }), 70us);
  Graph graph;
  EXPECT_EQ(time_of([&] { graph = stream_->capture([&] { run(); }); }), 0us);
  EXPECT_EQ(time_of([&] {
              stream_->replay(graph);
              stream_->replay(graph);
            }),
            140us);
  EXPECT_EQ(read<float>(sum_).front(), 2);
}

TEST_F(EmulatedDeviceClock, SpansOfATraceContainAnEventEach) {
  const auto trace = std::make_shared<Trace>();
  const emulator::Duration all = time_of([&] {
    const Traced traced(*stream_, trace);
    run();
  });
  EXPECT_EQ(all, 70us + 5 * 3us);  // the origin of the times is an event, too
  const std::vector<TraceSpan> spans = trace->spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_NEAR(spans[0].seconds(), 53e-6, 1e-9);
  EXPECT_NEAR(spans[1].seconds(), 23e-6, 1e-9);
  EXPECT_NEAR(spans[1].begin - spans[0].end, 3e-6, 1e-9);
}

TEST_F(EmulatedDeviceClock, IsOffUnlessATestSwitchesItOn) {
  emulator::device_clock() = {};
  EXPECT_EQ(time_of([&] { run(); }), 0us);
}

}  // namespace
}  // namespace spool::testing
