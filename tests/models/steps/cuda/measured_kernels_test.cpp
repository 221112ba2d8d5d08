// runs: emulator
// What is measured of a step's kernels on cuda is free of what the events around them take.  The
// emulated device has a clock on which kernels and events take the times that the test says.

#include "spool/models/steps/step_calibration.h"
#include "spool/models/steps/step_executor.h"
#include "spool/planner/machines/device_identity.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

using emulator::Duration;
using namespace std::chrono_literals;

constexpr Duration event = 3us;

double in_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// Between 20 and 83 us for a kernel; copies and the host's calls take none.
Duration time_of(const std::string& name) {
  if (name.ends_with("()")) return 0us;
  for (const char* call : {"copy", "copy in", "copy out", "upload", "download"}) {
    if (name == call) return 0us;
  }
  Hash hash;
  hash.add(std::string_view(name));
  return std::chrono::microseconds(20 + hash.state() % 64);
}

class CudaMeasuredKernels : public ::testing::Test {
 protected:
  CudaMeasuredKernels() { emulator::device_clock() = {.time_of = time_of, .event = event}; }
  ~CudaMeasuredKernels() override { emulator::device_clock() = {}; }

  // Copies take no time on the machine, as on the clock.
  Machine machine() const {
    const auto stream = open_stream({DeviceType::cuda}, Arena::granule);
    constexpr double no_time = 1e20;
    return {.architecture = stream->architecture(),
            .to_host_bytes_per_second = no_time,
            .from_host_bytes_per_second = no_time,
            .launch_seconds = 1e-9};
  }
  MeasuredKernels measure(const MeasurableWork& work) const {
    WorkKernels kernels = rehearse_kernels(work, machine());
    const auto stream = cuda_stream(kernels.peak);
    return measure_kernels(work, /*layout=*/{}, std::move(kernels), *stream);
  }
  // What a step of the work takes on the clock as it is replayed.
  double replayed(const MeasurableWork& work) const {
    const auto stream = cuda_stream();
    const auto opened = work.open(*stream, {});
    Duration before = {};
    for (int64_t run = 0; run < 3; ++run) {
      before = emulator::device_clock().now;
      opened->run(run);
      stream->synchronize();
    }
    return in_seconds(emulator::device_clock().now - before);
  }

  StepDescription step(int64_t accumulate) const {
    return describe({}, {.accumulate = accumulate});
  }
};

TEST_F(CudaMeasuredKernels, AreFreeOfTheirEvents) {
  for (const int64_t accumulate : {1, 2}) {
    const MeasuredKernels found = measure(measurable_step(step(accumulate), {}));
    EXPECT_GT(found.launches.size(), 50u);
    EXPECT_NEAR(found.event_seconds, in_seconds(event), 1e-8);
    for (const KernelTime& k : found.launches) {
      EXPECT_NEAR(k.seconds, in_seconds(time_of(k.name)), 1e-8) << k.name;
    }
  }
}

TEST_F(CudaMeasuredKernels, ForetellTheTimeOfAReplayedStep) {
  const MeasurableWork work = measurable_step(step(/*accumulate=*/2), {});
  Machine measured = machine();
  measured.kernels = std::make_shared<KernelTimes>(distinct(measure(work).launches));
  const double foretold = rehearse_kernels(work, measured).seconds;
  EXPECT_NEAR(foretold / replayed(work), 1, 0.02);
}

TEST_F(CudaMeasuredKernels, AreAtLeastHalfAMicrosecond) {
  emulator::device_clock().time_of = [](const std::string& name) {
    return name == "add" ? Duration(100) : time_of(name);
  };
  bool has_short = false;
  for (const KernelTime& k : measure(measurable_step(step(/*accumulate=*/1), {})).launches) {
    if (k.name != "add") continue;
    has_short = true;
    EXPECT_EQ(k.seconds, 0.5e-6);
  }
  EXPECT_TRUE(has_short);
}

// The rates are in the table already: an emulated device is slow.
TEST_F(CudaMeasuredKernels, TheTableKeepsWhatEventsTake) {
  const TemporaryDirectory folder;
  const DeviceIdentity device =
      identify(*open_stream({DeviceType::cuda}, Arena::granule), DType::f32);
  const auto file = table_file(folder.path(), device);
  save_table(file, {.device = device, .rates = machine()});
  CalibrationRequest request{.device = {DeviceType::cuda}, .folder = folder.path()};
  request.samples = {measurable_step(step(/*accumulate=*/1), {})};
  request.work = request.samples.front();
  const Calibration found = calibrate(request);
  EXPECT_GT(found.measured, 0u);
  EXPECT_TRUE(found.unmeasured.empty());
  EXPECT_NEAR(found.table.event_seconds, in_seconds(event), 1e-8);
  EXPECT_EQ(load_table(file, device).event_seconds, found.table.event_seconds);
}

}  // namespace
}  // namespace spool::testing
