// The parts of attention's backward run as they were planned, at the foretold peak, and a run that
// resumes under half or twice the budget keeps them.

#include <set>

#include "spool/kernels/attention_sizes.h"
#include "spool/models/steps/step_planner.h"
#include "spool/models/steps/step_runner.h"
#include "spool/planner/chunks.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/temporary_directory.h"

#if SPOOL_CUDA_EMULATED
#include "tests/emulator/spool/fused_attention.h"
#endif

namespace spool::testing {
namespace {

constexpr TransformerSizes sizes{
    .layers = 2, .channels = 64, .heads = 1, .batch = 2, .tokens = 256, .dtype = DType::bf16};

class CudaParts : public OnCuda {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (IsSkipped()) return;
    place.machine->architecture = cuda_stream(Arena::granule)->architecture();
    if (!std::get<CudaArchitecture>(place.machine->architecture).fused_attention) {
      GTEST_SKIP() << "there is no cuDNN here";
    }
  }
  StepPlace place{.device = {DeviceType::cuda}, .machine = Machine{}};

  size_t smallest_budget() const {
    return StepPlanner({describe(sizes)}, {}, *place.machine).smallest_budget();
  }
};

std::vector<int> parts_of(const StepRunner& runner) {
  std::vector<int> all;
  for (const NodesInChunks& n : parts_in(runner.planned().chunks.nodes)) all.push_back(n.chunks);
  return all;
}

#if SPOOL_CUDA_EMULATED
// Calls of cuDNN's backward in a step.
int64_t calls_of(const std::vector<int>& all) {
  const cuda::AttentionShape s{.B = sizes.batch,
                               .T = sizes.tokens,
                               .H = sizes.heads,
                               .Hkv = sizes.heads,
                               .D = sizes.channels / sizes.heads};
  int64_t calls = 0;
  for (const int parts : all) {
    if (parts > s.B * s.Hkv) continue;
    cuda::cut_backward(s, parts).for_each_part(s, [&](const cuda::AttentionPart&) { ++calls; });
  }
  return calls;
}
#endif

// The losses of the next steps, at the foretold peak.
std::vector<float> train(StepRunner& runner, int64_t last) {
  std::vector<float> losses;
  while (runner.steps() < last) {
    const int64_t number = runner.steps();
#if SPOOL_CUDA_EMULATED
    const int before = emulator::fused_attention().backwards;
#endif
    const auto upload = [&](int64_t) { runner.model<Transformer>().upload(number); };
    losses.push_back(runner.step(/*learning_rate=*/0.01, sizes.batch * sizes.tokens, upload).loss);
#if SPOOL_CUDA_EMULATED
    const int calls = emulator::fused_attention().backwards - before;
    const int64_t of_one = calls_of(parts_of(runner));
    EXPECT_EQ(calls % std::max<int64_t>(of_one, 1), 0);
    EXPECT_EQ(calls > 0, of_one > 0);
#endif
  }
  EXPECT_EQ(runner.stream().memory().peak, runner.planned().foretold.memory.peak);
  return losses;
}

TEST_F(CudaParts, AreKeptByARunThatResumesUnderAnotherBudget) {
  const size_t min = smallest_budget();
  std::set<std::vector<int>> seen;
  for (const size_t budget : {min, 2 * min}) {
    SCOPED_TRACE(sentence("budget ", budget));
    const TemporaryDirectory runs;
    StepRunner run(describe(sizes), {.budget = budget, .graph = false}, place);
    const std::vector<int> parts = parts_of(run);
    seen.insert(parts);
    ASSERT_EQ(parts.size(), 2U);
    train(run, 1);
    run.save(runs.path() / "run");
    const std::vector<float> on = train(run, 2);
    const StepRequest kept{.policy = with_chunks({}, run.planned().chunks),
                           .choose = Choices{.placement = true}};
    const size_t least =
        StepPlanner({describe(sizes)}, {.steps = kept}, *place.machine).smallest_budget();
    for (const size_t then : {budget / 2, 2 * budget}) {
      const StepRequest request{.budget = then, .graph = false};
      if (then < least) {
        EXPECT_THROW(StepRunner(describe(sizes), request, place, runs.path() / "run"), Error);
        continue;
      }
      StepRunner resumed(describe(sizes), request, place, runs.path() / "run");
      EXPECT_EQ(parts_of(resumed), parts);
      EXPECT_EQ(train(resumed, 2), on);
    }
  }
  EXPECT_EQ(seen.size(), 2U);
}

// One part of each, as where memory is not limited, is what a plan without parts has.
TEST_F(CudaParts, OfARunWithoutABudgetAreThoseItResumesWith) {
  const TemporaryDirectory runs;
  StepRunner run(describe(sizes), {.graph = false}, place);
  train(run, 1);
  run.save(runs.path() / "run");
  const std::vector<float> on = train(run, 2);
  StepRunner resumed(describe(sizes), {.graph = false}, place, runs.path() / "run");
  EXPECT_EQ(parts_of(resumed), parts_of(run));
  EXPECT_EQ(train(resumed, 2), on);
}

}  // namespace
}  // namespace spool::testing
