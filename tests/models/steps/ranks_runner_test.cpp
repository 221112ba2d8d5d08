// runs: threads
// A StepRunner on ranks saves the files of one rank, byte for byte, or nothing if its ranks differ,
// and resumes on any number of them.

#include "spool/models/steps/step_runner.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/environment.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

constexpr TransformerSizes sizes{.layers = 1, .dropout = 0.1F};
constexpr int64_t micro_batches = 4;

// Trains up to this step on ranks, from a checkpoint of the directory if it has one, and saves.
void train(int ranks, int64_t last, const fs::path& directory, const StepRequest& request = {}) {
  const bool resumes = fs::exists(directory);
  Machine machine = cpu_machine();
  machine.architecture = this_processor(/*threads=*/1);
  run_ranks(ranks, [&](const std::shared_ptr<Communicator>& own) {
    const StepConfig config{.accumulate = micro_batches, .ranks = ranks};
    const StepPlace place{.threads = 1, .machine = machine, .ranks = own};
    StepRunner runner(describe(sizes, config), request, place, resumes ? directory.string() : "");
    while (runner.steps() < last) {
      const int64_t first = runner.steps() * micro_batches;
      const StepResult result =
          runner.step(/*learning_rate=*/0.01, micro_batches * sizes.batch * sizes.tokens,
                      [&](int64_t micro) { runner.model<Transformer>().upload(first + micro); });
      EXPECT_TRUE(result.finite);
    }
    EXPECT_EQ(runner.stream().memory().peak, runner.planned().foretold.memory.peak);
    runner.save(directory.string());
  });
}

void expect_same(const fs::path& one, const fs::path& other) {
  constexpr uint64_t max_bytes = uint64_t{1} << 24;
  for (const char* name : {"parameters.safetensors", "optimizer.safetensors", "step.json"}) {
    EXPECT_EQ(read_text_file(one / "latest" / name, max_bytes),
              read_text_file(other / "latest" / name, max_bytes))
        << name;
  }
}

TEST(RanksOfAStepRunner, SaveTheFilesOfOne) {
  const TemporaryDirectory folder;
  const Policy kept;
  train(1, 3, folder.path() / "one", {.policy = kept});
  for (const int ranks : {2, 4}) {
    const fs::path directory = folder.path() / std::to_string(ranks);
    train(ranks, 3, directory, {.policy = kept});
    expect_same(folder.path() / "one", directory);
  }
}

TEST(RanksOfAStepRunner, ResumeOnAnotherNumber) {
  const TemporaryDirectory folder;
  train(1, 4, folder.path() / "whole");
  const fs::path parts = folder.path() / "parts";
  train(4, 1, parts);
  train(2, 3, parts);
  train(1, 4, parts);
  expect_same(folder.path() / "whole", parts);
}

// Each rank alone would measure other times, and might plan otherwise.
TEST(RanksOfAStepRunner, MeasureTogetherAndPlanAlike) {
  const TemporaryDirectory cache;
  const EnvironmentVariable folder("XDG_CACHE_HOME", cache.path().string());
  std::vector<double> foretold(2);
  run_ranks(2, [&](const std::shared_ptr<Communicator>& own) {
    StepRunner runner(describe(sizes, {.accumulate = micro_batches, .ranks = 2}), {},
                      {.threads = 1, .ranks = own});
    foretold[static_cast<size_t>(own->rank())] = runner.planned().foretold.seconds;
  });
  EXPECT_EQ(foretold[0], foretold[1]);
  std::vector<std::string> tables;
  for (const std::string& name : names_in(cache.path() / "spool")) {
    if (name.ends_with(".json")) tables.push_back(name);
  }
  ASSERT_EQ(tables.size(), 1u);
  const std::string table = content_of(cache.path() / "spool" / tables.front());
  for (const char* part : {"\"ranks\":\"2\"", "\"backend\":\"threads\"", "\"sum_ranks\""}) {
    EXPECT_NE(table.find(part), std::string::npos) << part;
  }
}

TEST(RanksOfAStepRunner, SaveNothingOfParametersThatDiffer) {
  const TemporaryDirectory folder;
  const fs::path run = folder.path() / "run";
  const auto train_and_save = [&](const std::shared_ptr<Communicator>& own) {
    Machine machine = cpu_machine();
    machine.architecture = this_processor(/*threads=*/1);
    StepRunner runner(describe(sizes, {.accumulate = micro_batches, .ranks = 4}), {},
                      {.threads = 1, .machine = machine, .ranks = own});
    runner.step(/*learning_rate=*/0.01, /*targets=*/1,
                [&](int64_t micro) { runner.model<Transformer>().upload(micro); });
    Parameter& last = *runner.model().parameters().all().back();
    std::vector<float> values = read<float>(last.data);
    if (own->rank() == 2) values.back() += 1e-6F;
    write<float>(last.data, values);
    runner.save(run.string());
  };
  const std::string name = [] {
    CpuStream stream(size_t{64} << 20, 1);
    Transformer model(sizes, stream);
    return std::string(model.parameters().all().back()->name);
  }();
  expect_error(ErrorKind::device, {"rank 2 has other values", name, "than rank 0", "nothing"},
               [&] { run_ranks(4, train_and_save); });
  EXPECT_FALSE(fs::exists(run));
}

}  // namespace
}  // namespace spool::testing
