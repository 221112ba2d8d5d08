// runs: threads
// A StepRunner whose ranks share each micro-batch trains as one rank does, saves its files, and
// resumes on any mesh.

#include <algorithm>
#include <cmath>

#include "spool/models/steps/step_runner.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/models/steps/sharding_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

constexpr TransformerSizes sizes{
    .layers = 2, .channels = 32, .heads = 4, .batch = 4, .tokens = 16, .dropout = 0.1F};
constexpr int64_t micro_batches = 2;
constexpr uint64_t seeds = 3;

// Ranks that share micro-batches, and in each group of them the axes along which ops are cut.
struct RanksOfARun {
  int replicas = 1;
  const char* mesh = "";
  uint64_t seed = 0;
  int zero = 2;

  std::string name() const {
    return sentence(replicas, " groups of ", *mesh ? mesh : "one", ", stage ", zero, ", seed ",
                    seed);
  }
};

StepDescription describe_on(const RanksOfARun& run) {
  StepDescription described = describe(sizes, {.accumulate = micro_batches,
                                               .ranks = run.replicas,
                                               .zero = run.zero,
                                               .optimizer = AdamWSettings{.clip = 0.5}});
  if (!*run.mesh) return described;
  const MeshAxes mesh = parse_mesh(run.mesh);
  described.config.ranks *= mesh.ranks();
  described.shards = StepShards{.mesh = mesh, .choose = [mesh, seed = run.seed](const auto& loss) {
                                  return random_assignment(loss, mesh, seed);
                                }};
  return described;
}

// Trains up to this step, from a checkpoint of the directory if it has one, and saves.  Returns the
// losses and norms of the steps, which all ranks have.
std::vector<float> train_on(const RanksOfARun& run, int64_t last, const fs::path& directory) {
  SCOPED_TRACE(run.name());
  const bool resumes = fs::exists(directory);
  Machine machine = cpu_machine();
  machine.architecture = this_processor(/*threads=*/1);
  const StepDescription described = describe_on(run);
  std::vector<std::vector<float>> all(static_cast<size_t>(described.config.ranks));
  run_ranks(described.config.ranks, [&](const std::shared_ptr<Communicator>& own) {
    StepRunner runner(described, {}, {.threads = 1, .machine = machine, .ranks = own},
                      resumes ? directory.string() : "");
    const bool steps = runner.steps() < last;
    while (runner.steps() < last) {
      const int64_t first = runner.steps() * micro_batches;
      const StepResult result =
          runner.step(/*learning_rate=*/0.01, micro_batches * sizes.batch * sizes.tokens,
                      [&](int64_t micro) { runner.model<Transformer>().upload(first + micro); });
      EXPECT_TRUE(result.finite);
      auto& numbers = all[static_cast<size_t>(own->rank())];
      numbers.insert(numbers.end(), {result.loss, result.grad_norm});
    }
    if (steps) {
      EXPECT_EQ(runner.stream().memory().peak, runner.planned().foretold.memory.peak);
    }
    runner.save(directory.string());
  });
  for (const auto& of_rank : all) EXPECT_EQ(of_rank, all[0]);
  return all[0];
}

void expect_close(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(found[i], wanted[i], 1e-5F * std::max(1.0F, std::abs(wanted[i]))) << i;
  }
}

std::vector<std::string> files_of(const fs::path& run) {
  constexpr uint64_t max_bytes = uint64_t{1} << 24;
  std::vector<std::string> all;
  for (const char* name : {"parameters.safetensors", "optimizer.safetensors", "step.json"}) {
    all.push_back(read_text_file(run / "latest" / name, max_bytes));
  }
  return all;
}

class ShardedRunner : public ::testing::TestWithParam<RanksOfARun> {};
INSTANTIATE_TEST_SUITE_P(Mesh, ShardedRunner,
                         ::testing::Values(RanksOfARun{1, "1"}, RanksOfARun{1, "2"},
                                           RanksOfARun{1, "2", 1, 0}, RanksOfARun{1, "4", 2},
                                           RanksOfARun{1, "2x2", 3}, RanksOfARun{2, "2", 4},
                                           RanksOfARun{2, "2", 5, 1}, RanksOfARun{2, "2", 6, 0}));

TEST_P(ShardedRunner, HasTheLossesOfOneRank) {
  const TemporaryDirectory folder;
  const std::vector<float> alone = train_on({}, 5, folder.path() / "alone");
  for (uint64_t more = 0; more < (nightly() ? seeds : 1); ++more) {
    RanksOfARun run = GetParam();
    run.seed += 10 * more;
    expect_close(train_on(run, 5, folder.path() / std::to_string(more)), alone);
  }
}

TEST(ShardedRun, OnOneRankHasTheBitsOfTheModelItself) {
  const TemporaryDirectory folder;
  EXPECT_EQ(train_on({1, "1x1"}, 3, folder.path() / "mesh"),
            train_on({}, 3, folder.path() / "alone"));
}

TEST(ShardedRun, SavesTheBytesThatAnotherMeshSaved) {
  const TemporaryDirectory folder;
  const fs::path run = folder.path() / "run";
  train_on({}, 2, run);
  const std::vector<std::string> saved = files_of(run);
  for (const RanksOfARun& mesh :
       {RanksOfARun{1, "2"}, RanksOfARun{1, "2x2", 1}, RanksOfARun{2, "2", 2}, RanksOfARun{}}) {
    train_on(mesh, 2, run);
    EXPECT_EQ(files_of(run), saved) << mesh.name();
  }
}

TEST(ShardedRun, GoesOnOnAnyMesh) {
  const TemporaryDirectory folder;
  const std::vector<float> alone = train_on({}, 4, folder.path() / "alone");
  std::vector<float> parts;
  int64_t last = 0;
  for (const RanksOfARun& mesh :
       {RanksOfARun{1, "4"}, RanksOfARun{}, RanksOfARun{1, "2x2", 1}, RanksOfARun{2, "2", 2}}) {
    const std::vector<float> some = train_on(mesh, ++last, folder.path() / "parts");
    parts.insert(parts.end(), some.begin(), some.end());
  }
  expect_close(parts, alone);
}

TEST(ShardedRun, OfTwoReplicasEndsInTheBytesOfOne) {
  const TemporaryDirectory folder;
  train_on({1, "2", 7}, 3, folder.path() / "one");
  train_on({2, "2", 7}, 3, folder.path() / "two");
  EXPECT_EQ(files_of(folder.path() / "one"), files_of(folder.path() / "two"));
}

}  // namespace
}  // namespace spool::testing
