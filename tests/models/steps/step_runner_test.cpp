// runs: numbers
// A StepRunner trains any model as it was planned: within its budget, at the foretold peak, with
// the same bits whatever the plan, and from a checkpoint as if it had never stopped.

#include "spool/models/steps/step_runner.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "spool/models/formats/run_directory.h"
#include "spool/models/steps/step_planner.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

constexpr TransformerSizes sizes{.layers = 3, .tokens = 64, .dropout = 0.1f};

StepDescription drawn(const StepConfig& config = {.accumulate = 2},
                      const TransformerSizes& s = sizes) {
  return describe(s, config);
}

const StepPlace here{.device = {DeviceType::cpu}, .threads = 2, .machine = cpu_machine()};

std::vector<float> train(StepRunner& runner, int64_t last) {
  std::vector<float> numbers;
  const int64_t micro_batches = 2;
  while (runner.steps() < last) {
    const int64_t first = runner.steps() * micro_batches;
    const StepResult result =
        runner.step(/*learning_rate=*/0.01, micro_batches * sizes.batch * sizes.tokens,
                    [&](int64_t micro) { runner.model<Transformer>().upload(first + micro); });
    EXPECT_TRUE(result.finite);
    numbers.insert(numbers.end(), {result.loss, result.grad_norm});
  }
  return numbers;
}

Bytes state_of(StepRunner& runner) {
  return state_bytes(runner.model().parameters(), runner.optimizer());
}

size_t keep_all_peak() {
  return plan_steps(drawn(), {.policy = Policy{}}, *here.machine).foretold.memory.peak;
}

// A budget between the smallest and that of keeping all, by fraction.
size_t budget_at(double part, const StepRequest& request = {}) {
  const size_t min = StepPlanner({drawn()}, {.steps = request}, *here.machine).smallest_budget();
  return min + static_cast<size_t>(part * static_cast<double>(keep_all_peak() - min));
}

TEST(StepRunner, ReachesTheForetoldPeakWithTheBitsOfKeepingAll) {
  StepRunner kept(drawn(), {.policy = Policy{}}, here);
  const std::vector<float> numbers = train(kept, 3);
  const auto state = state_of(kept);
  EXPECT_EQ(kept.stream().memory().peak, kept.planned().foretold.memory.peak);

  const TemporaryDirectory spill;
  Policy all_recomputed{.norms = true, .activations = true, .attention = true, .block = true};
  Policy offloaded{.offload = Offloading::all, .min_offload_bytes = 1};
  Policy to_disk = offloaded, streamed = all_recomputed, on_host = all_recomputed;
  to_disk.target = OffloadTarget::disk;
  streamed.optimizer_state = OptimizerState::streamed;
  on_host.optimizer_state = OptimizerState::cpu;
  const Choices placement{.placement = true};
  std::vector<StepRequest> requests;
  for (const Policy& p : {all_recomputed, offloaded, to_disk, streamed, on_host}) {
    requests.push_back({.policy = p, .spill_directory = spill.path()});
  }
  requests.push_back({.choose = placement, .budget = budget_at(0.3, {.choose = placement})});
  requests.push_back({.plan = plan_step(drawn(), all_recomputed, *here.machine)});
  for (const StepRequest& request : requests) {
    StepRunner runner(drawn(), request, here);
    EXPECT_EQ(train(runner, 3), numbers);
    EXPECT_TRUE(state_of(runner) == state);
    EXPECT_EQ(runner.stream().memory().peak, runner.planned().foretold.memory.peak);
    EXPECT_EQ(runner.host_memory().peak, runner.planned().foretold.host.peak);
    EXPECT_EQ(runner.disk().peak, runner.planned().foretold.disk.peak);
  }
}

TEST(StepRunner, PlansForItsBudget) {
  for (const double part : {0.0, 0.2, 0.7, 1.0}) {
    const size_t budget = budget_at(part);
    StepRunner runner(drawn(), {.budget = budget}, here);
    EXPECT_LE(runner.planned().foretold.memory.peak, budget);
    EXPECT_EQ(runner.stream().memory().capacity, budget);
    train(runner, 2);
    EXPECT_EQ(runner.stream().memory().peak, runner.planned().foretold.memory.peak);
  }
}

TEST(StepRunner, ListsWhatIsLiveAtThePeak) {
  const Report report = plan_steps(drawn(), {.policy = Policy{}}, *here.machine).foretold;
  size_t sum = 0;
  bool has_embedding = false;
  for (const LiveAtPeak& live : report.at_peak) {
    sum += live.bytes;
    has_embedding |= live.name == "embedding.weight" && live.purpose == Purpose::parameter;
  }
  EXPECT_LE(sum, report.memory.peak);
  EXPECT_GT(sum, report.memory.peak / 2);
  EXPECT_TRUE(has_embedding);
  EXPECT_TRUE(report.missing.empty());
}

TEST(StepRunner, SaysWhatWouldFit) {
  const size_t min = StepPlanner({drawn()}, {}, *here.machine).smallest_budget();
  expect_error(ErrorKind::memory,
               {"the smallest plan of these steps", std::to_string(min), "micro-batch"},
               [&] { StepRunner(drawn(), {.budget = min - 512}, here); });
  EXPECT_NO_THROW(StepRunner(drawn(), {.budget = min}, here));
  expect_error(ErrorKind::memory, {"a step by this plan", "one is chosen"}, [&] {
    StepRunner(drawn(), {.policy = Policy{}, .budget = keep_all_peak() - 512}, here);
  });
  expect_error(ErrorKind::invalid, {"both a policy and a plan"},
               [&] { StepRunner(drawn(), {.policy = Policy{}, .plan = Plan{}}, here); });
}

// With plans that differ in everything but their chunks.
TEST(StepRunner, ResumesFromACheckpointWithTheSameBits) {
  const size_t budget = budget_at(0.2);
  StepRunner whole(drawn(), {.budget = budget}, here);
  const std::vector<float> numbers = train(whole, 5);
  const TemporaryDirectory d;
  const fs::path run = d.path() / "run";
  {
    StepRunner first(drawn(), {.budget = budget}, here);
    train(first, 2);
    first.save(run);
    train(first, 3);
    first.save(run);
  }
  Policy streamed;
  streamed.optimizer_state = OptimizerState::streamed;
  for (const StepRequest& request :
       {StepRequest{.budget = budget}, StepRequest{}, StepRequest{.policy = streamed}}) {
    StepRunner second(drawn(), request, here, run);
    EXPECT_EQ(second.steps(), 3);
    EXPECT_EQ(second.optimizer().steps(), 3);
    EXPECT_EQ(train(second, 5), std::vector<float>(numbers.begin() + 6, numbers.end()));
    EXPECT_TRUE(state_of(second) == state_of(whole));
  }
}

class StepRunnerCheckpoint : public ::testing::Test {
 protected:
  StepRunnerCheckpoint() {
    StepRunner runner(drawn(), {.policy = chunked()}, here);
    train(runner, 1);
    runner.save(run_);
  }
  static Policy chunked() { return {.loss_chunk = 16}; }
  void expect_refused(std::initializer_list<std::string_view> words, const StepDescription& step,
                      const StepRequest& request = {}) {
    expect_error(ErrorKind::file, words, [&] { StepRunner(step, request, here, run_); });
  }
  fs::path file(const char* name) const { return *latest_checkpoint(run_) / name; }

  TemporaryDirectory d_;
  fs::path run_ = d_.path() / "run";
};

// The contents of all files in a folder, recursively; links as such.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::string& text = contents[fs::relative(entry.path(), folder)];
    if (entry.is_symlink()) {
      text = "link to " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_regular_file()) {
      std::getline(std::ifstream(entry.path(), std::ios::binary), text, '\0');
    }
  }
  return contents;
}

TEST_F(StepRunnerCheckpoint, IsNeverThatOfAnotherRun) {
  StepRunner other(drawn(), {.policy = chunked()}, here);
  train(other, 2);
  const auto before = contents_of(run_);
  for (const fs::path& name : {run_, run_ / "", d_.path() / "." / "none" / ".." / "run"}) {
    expect_error(ErrorKind::file, {"another run", "resume that one", "another directory"},
                 [&] { other.save(name); });
    EXPECT_EQ(contents_of(run_), before);
  }
  const fs::path link = d_.path() / "link", elsewhere = d_.path() / "elsewhere";
  fs::create_directory_symlink(run_, link);
  expect_error(ErrorKind::file, {"another run"}, [&] { other.save(link); });
  other.save(elsewhere);
  EXPECT_EQ(latest_checkpoint(elsewhere)->filename(), "step-000002");
  train(other, 3);
  expect_error(ErrorKind::file, {"another run"}, [&] { other.save(run_); });
  other.save(elsewhere / "");
  EXPECT_EQ(latest_checkpoint(elsewhere)->filename(), "step-000003");
  EXPECT_EQ(contents_of(run_), before);
  expect_error(ErrorKind::invalid, {"has no name"}, [&] { other.save(""); });
}

TEST_F(StepRunnerCheckpoint, MayBeWrittenByARunnerThatResumedItAndSavedElsewhere) {
  StepRunner second(drawn(), {}, here, run_ / "");
  train(second, 2);
  const fs::path copy = d_.path() / "copy";
  second.save(copy);
  train(second, 3);
  second.save(run_);
  train(second, 4);
  second.save(copy);
  EXPECT_EQ(latest_checkpoint(run_)->filename(), "step-000003");
  EXPECT_EQ(latest_checkpoint(copy)->filename(), "step-000004");
  // A folder stays locked while another run writes to it, and the runner keeps its own one.
  StepRunner third(drawn(), {}, here);
  expect_error(ErrorKind::file, {"another"}, [&] { third.save(copy); });
}

TEST_F(StepRunnerCheckpoint, IsOfOneModelAndOneRun) {
  TransformerSizes larger = sizes;
  larger.layers = 4;
  expect_refused({"step.json", "another model", "differ at node"},
                 drawn({.accumulate = 2}, larger));
  expect_refused({"2 micro-batches a step and seed 1, not of 4 and 1"}, drawn({.accumulate = 4}));
  expect_refused({"seed 1, not of 2 and 9"}, drawn({.accumulate = 2, .seed = 9}));
  expect_refused({"other chunks"}, drawn(), {.plan = plan_step(drawn(), Policy{}, *here.machine)});
  EXPECT_NO_THROW(
      StepRunner(drawn(), {.plan = plan_step(drawn(), chunked(), *here.machine)}, here, run_));
}

TEST_F(StepRunnerCheckpoint, KeepsTheChunksOfItsRun) {
  StepRunner runner(drawn(), {}, here, run_);
  const Plan own = plan_step(drawn(), chunked(), *here.machine);
  EXPECT_EQ(runner.planned().plans.step.chunks, own.chunks);
}

TEST_F(StepRunnerCheckpoint, IsRefusedIfAFileIsOfAnotherOrChanged) {
  const fs::path parameters = file("parameters.safetensors");
  const fs::path aside = d_.path() / "aside";
  fs::copy_file(parameters, aside);
  {
    StepRunner runner(drawn(), {}, here, run_);
    train(runner, 2);
    runner.save(run_);
  }
  fs::copy_file(aside, file("parameters.safetensors"), fs::copy_options::overwrite_existing);
  expect_refused({"parameters.safetensors", "of step 1", "of step 2"}, drawn());
}

TEST_F(StepRunnerCheckpoint, IsRefusedIfStepJsonIsDamaged) {
  std::string text;
  std::getline(std::ifstream(file("step.json")), text, '\0');
  const auto write_json = [&](const std::string& changed) {
    std::ofstream(file("step.json")) << changed;
  };
  std::string seed = text;
  seed.replace(seed.find("\"seed\": 1"), 9, "\"seed\": 2");
  write_json(seed);
  expect_refused({"step.json", "changed after the run wrote it"},
                 drawn({.accumulate = 2, .seed = 2}));
  for (size_t length = 0; length + 2 < text.size(); length += 97) {
    write_json(text.substr(0, length));
    expect_refused({"step.json"}, drawn());
  }
  fs::remove(file("step.json"));
  expect_refused({"no checkpoint of a StepRunner"}, drawn());
}

TEST_F(StepRunnerCheckpoint, OfALaterVersionIsRefusedByItsNumber) {
  std::string text;
  std::getline(std::ifstream(file("step.json")), text, '\0');
  const std::string own = "\"format_version\": 1";
  ASSERT_NE(text.find(own), std::string::npos);
  text.replace(text.find(own), own.size(), "\"format_version\": 2");
  std::ofstream(file("step.json")) << text;
  expect_refused({"step.json", "format_version", "2 cannot be read; this library reads 1"},
                 drawn());
}

TEST(StepRunner, NeedsACheckpointToResume) {
  const TemporaryDirectory d;
  expect_error(ErrorKind::file, {"no checkpoint to go on from"},
               [&] { StepRunner(drawn(), {}, here, d.path()); });
}

}  // namespace
}  // namespace spool::testing
