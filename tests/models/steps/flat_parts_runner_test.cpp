// runs: threads
// Ranks that store parameters in flat parts (ZeRO-3) end in the bytes of ranks that have them
// whole, whether what they gather is kept or gathered again, at the peak that was foretold.

#include <algorithm>

#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/steps/step_runner.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

// Of each block two weights are large enough for parts, the others are not.
constexpr TransformerSizes sizes{
    .layers = 4, .channels = 128, .batch = 2, .tokens = 16, .dropout = 0.1F};

struct Trained {
  std::vector<float> numbers = {};  // losses and norms
  std::vector<std::string> files = {};
  size_t peak = 0;
  bool operator==(const Trained& o) const { return numbers == o.numbers && files == o.files; }
};

struct StagedRun {
  int replicas = 2, zero = 2;
  const char* mesh = "";
  Policy policy = {};
  int64_t micro_batches = 4;
};

Trained train_in_stage(const StagedRun& run, const fs::path& directory, int64_t last = 2) {
  StepDescription described = describe(sizes, {.accumulate = run.micro_batches,
                                               .ranks = run.replicas,
                                               .zero = run.zero,
                                               .optimizer = AdamWSettings{.clip = 0.5}});
  if (*run.mesh) {
    described.shards = shards(run.mesh, "megatron");
    described.config.ranks *= described.shards->mesh.ranks();
  }
  Machine machine = cpu_machine();
  machine.architecture = this_processor(/*threads=*/1);
  const bool resumes = fs::exists(directory);
  Trained all;
  run_ranks(described.config.ranks, [&](const std::shared_ptr<Communicator>& own) {
    StepRunner runner(described, {.policy = run.policy},
                      {.threads = 1, .machine = machine, .ranks = own},
                      resumes ? directory.string() : "");
    const bool is_first = own->rank() == 0, steps = runner.steps() < last;
    while (runner.steps() < last) {
      const int64_t first = runner.steps() * run.micro_batches;
      const StepResult result =
          runner.step(/*learning_rate=*/0.01, run.micro_batches * sizes.batch * sizes.tokens,
                      [&](int64_t micro) { runner.model<Transformer>().upload(first + micro); });
      EXPECT_TRUE(result.finite);
      if (is_first) all.numbers.insert(all.numbers.end(), {result.loss, result.grad_norm});
    }
    if (steps) {
      EXPECT_EQ(runner.stream().memory().peak, runner.planned().foretold.memory.peak);
    }
    if (is_first) all.peak = runner.stream().memory().peak;
    runner.save(directory.string());
  });
  for (const char* name : {"parameters.safetensors", "optimizer.safetensors"}) {
    std::string& file =
        all.files.emplace_back(read_text_file(directory / "latest" / name, uint64_t{1} << 26));
    // A run without shards says which chunks it has.
    constexpr std::string_view key = R"("spool_run":")";
    file.erase(file.find(key) + key.size(), 16);
  }
  return all;
}

TEST(FlatPartsRunner, EndsInTheBytesOfStage2) {
  const TemporaryDirectory folder;
  int number = 0;
  const auto train = [&](const StagedRun& run) {
    return train_in_stage(run, folder.path() / std::to_string(number++));
  };
  const Policy again{.gathers = true}, blocks{.block = true, .gathers = true};
  const Trained whole = train({});
  const Trained kept = train({.zero = 3}), gathered = train({.zero = 3, .policy = again});
  EXPECT_EQ(kept.numbers, whole.numbers);
  EXPECT_TRUE(kept == whole);
  EXPECT_TRUE(gathered == whole);
  EXPECT_LT(gathered.peak, kept.peak);
  EXPECT_LT(gathered.peak, whole.peak);
  if (finds_races() && !nightly()) return;  // two ranks have all there are
  EXPECT_TRUE(train({.replicas = 4, .zero = 3, .policy = blocks}) == whole);
  const StagedRun of_three{.replicas = 3, .micro_batches = 3};
  StagedRun in_parts = of_three;
  in_parts.zero = 3;
  EXPECT_TRUE(train(in_parts) == train(of_three));
}

TEST(FlatPartsRunner, EndsInTheBytesOfStage2WhereRanksShareEachMicroBatchToo) {
  const TemporaryDirectory folder;
  const Trained whole = train_in_stage({.mesh = "2"}, folder.path() / "whole");
  const Trained parts = train_in_stage({.zero = 3, .mesh = "2"}, folder.path() / "parts");
  EXPECT_TRUE(parts == whole);
}

TEST(FlatPartsRunner, GoesOnInAnyStageAndSavesTheSameBytesAtOnce) {
  if (finds_races() && !nightly()) GTEST_SKIP() << "the tests above train so";
  const TemporaryDirectory folder;
  const fs::path run = folder.path() / "run";
  const Trained begun = train_in_stage({}, run, 1);
  for (const StagedRun& other : {StagedRun{.zero = 3}, StagedRun{.replicas = 4, .zero = 3},
                                 StagedRun{.zero = 3, .mesh = "2"}}) {
    EXPECT_EQ(train_in_stage(other, run, 1).files, begun.files);
  }
  train_in_stage({.replicas = 4, .zero = 3, .policy = {.gathers = true}}, run, 2);
  const Trained moved = train_in_stage({.zero = 1}, run, 2);
  EXPECT_EQ(moved.files, train_in_stage({}, folder.path() / "whole", 2).files);
}

}  // namespace
}  // namespace spool::testing
