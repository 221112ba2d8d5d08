// runs: serial
// A budget above the memory of a GPU: a run's is lowered, which takes none of it, and an arena of
// that size is refused.

#include "spool/models/steps/run_request.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

constexpr Device gpu{DeviceType::cuda};
constexpr size_t too_much = size_t{900} << 40;

class CudaMemoryLimit : public OnCuda {};

TEST_F(CudaMemoryLimit, IsWhatTheDeviceHasAndReservesNothing) {
  const Machine machine{.architecture = cuda_stream(Arena::granule)->architecture()};
  const size_t available = device_memory(gpu);
  RunRequest request;
  limit_memory(request, gpu, too_much, machine);
  EXPECT_EQ(request.capacity, available);
  EXPECT_EQ(request.steps.budget, available);
  EXPECT_EQ(request.steps.free, available);
  EXPECT_EQ(lowered_budget(too_much, request),
            sentence("the budget of 900 TiB is more than the ", format_bytes(available),
                     " that the device has for it, and becomes that"));
  EXPECT_EQ(device_memory(gpu), available);

  limit_memory(request, gpu, Arena::granule, machine);
  EXPECT_EQ(request.steps.budget, Arena::granule);
  EXPECT_EQ(lowered_budget(Arena::granule, request), "");
}

TEST_F(CudaMemoryLimit, IsSaidOfAnArena) {
  expect_error(ErrorKind::memory, {"are available"}, [] { cuda_stream(too_much); });
}

}  // namespace
}  // namespace spool::testing
