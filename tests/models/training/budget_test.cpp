// runs: numbers
// How much of a device's memory a run may take, and the messages if that is too little.

#include "spool/models/training/planned_run.h"

#include <algorithm>

#include "spool/models/families/gpt2_config.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/memory/host_memory.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

const Machine two_cores{.architecture = CpuArchitecture{.threads = 2}};
const Device cpu{DeviceType::cpu};
constexpr size_t terabyte = 1'000'000'000'000;

PlannedRun plan(const RunRequest& request) {
  return RunPlanner(small(), request, SampleLength{}, two_cores).plan();
}

TEST(Budget, LeavesSomeOfTheHostsMemory) {
  EXPECT_GT(free_memory(cpu), size_t{1} << 20);
  EXPECT_LT(free_memory(cpu), device_memory(cpu));
}

TEST(Budget, LeavesMemoryForTheProgramItself) {
  RunRequest limit;
  limit_memory(limit, cpu, /*budget=*/1000, two_cores);
  EXPECT_EQ(limit.steps.budget, 1000u);
  EXPECT_GT(limit.program_bytes, resident_memory() / 2);
  EXPECT_LT(limit.program_bytes, size_t{1} << 30);
  EXPECT_NEAR(static_cast<double>(limit.capacity + limit.program_bytes),
              static_cast<double>(device_memory(cpu)), 1.0);
  EXPECT_LE(limit.steps.free, limit.capacity);
  const Machine of_64{.architecture = CpuArchitecture{.threads = 64}};
  EXPECT_GT(expected_program_bytes(of_64), expected_program_bytes(two_cores));
  EXPECT_EQ(expected_program_bytes(*named_machine("h100")), 0u);
}

TEST(Budget, BecomesWhatTheDeviceHas) {
  RunRequest request{.steps = {.choose = Choices{.placement = true}}};
  limit_memory(request, cpu, 1000 * terabyte, two_cores);
  EXPECT_EQ(request.steps.budget, request.capacity);
  EXPECT_NE(lowered_budget(1000 * terabyte, request).find("becomes that"), std::string::npos);
  EXPECT_EQ(lowered_budget(request.capacity, request), "");
  const PlannedRun run = plan(request);
  EXPECT_FALSE(run.refusal);
  EXPECT_EQ(run.budget, request.capacity);
  EXPECT_EQ(run.program_bytes, request.program_bytes);
}

TEST(Budget, RefusesWhatTheMachineLacksAndWarnsOfWhatIsTaken) {
  RunRequest request;
  limit_memory(request, cpu, /*budget=*/0, two_cores);
  PlannedRun run = plan(request);
  EXPECT_EQ(warn_of_memory(run, request), "");
  request.program_bytes = 2 * host_memory();  // more than other tests can free meanwhile
  EXPECT_NE(warn_of_memory(run, request).find("is available now"), std::string::npos);
  request.device.reset();
  EXPECT_EQ(warn_of_memory(run, request), "");
  request.device = cpu;
  request.capacity = run.foretold.memory.peak - 1;
  run = plan(request);
  ASSERT_TRUE(run.refusal);
  EXPECT_NE(std::string(run.refusal->what()).find("on the device"), std::string::npos);
  EXPECT_EQ(warn_of_memory(run, request), "");  // a refused run takes nothing
}

// Nodes of this plan run in more chunks than a micro-batch has rows.
TEST(Budget, SaysThatFewerThreadsWouldFitInTheFoundChunks) {
  TrainingConfig config = without_masters(small());
  config.model =
      Gpt2Config{.layers = 2, .heads = 4, .channels = 256, .context = 64, .vocabulary = 512};
  config.batch = 2;
  config.seq = 64;
  config.accumulate = 2;
  RunRequest request{
      .steps = {.choose = Choices{.placement = true, .loss_chunk = true, .regions = true}}};
  const auto planner = [&](int threads) {
    const Machine machine{.architecture = CpuArchitecture{.threads = threads}};
    return RunPlanner(config, request, SampleLength{}, machine);
  };
  constexpr size_t too_little = 1, spare = 32768;
  const PlannedRun smallest = planner(2).plan_within(too_little);
  const bool has_many_chunks = std::ranges::any_of(
      smallest.chunks.nodes, [&](const NodesInChunks& n) { return n.chunks > config.batch; });
  EXPECT_TRUE(has_many_chunks);
  request.steps.budget = planner(1).plan_within(too_little).foretold.memory.peak + spare;
  ASSERT_LT(request.steps.budget, smallest.foretold.memory.peak);
  const PlannedRun run = planner(2).plan();
  ASSERT_TRUE(run.refusal);
  const std::string why = run.refusal->what();
  EXPECT_NE(why.find("with 1 thread it would fit"), std::string::npos) << why;
}

}  // namespace
}  // namespace spool::testing
