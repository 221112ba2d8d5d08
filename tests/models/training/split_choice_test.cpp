// runs: numbers
// The micro-batches that a search chooses for the tokens of a step, beside every other split.

#include "spool/models/training/split_choice.h"

#include "spool/models/families/gpt2.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"
#include "spool/planner/machines/machine.h"
#include "tests/models/training/training_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int64_t seq = 32;

RunOptions options_of(int64_t rows, GivenTexts more = {}) {
  GivenTexts given{{"layers", {"3"}},    {"heads", {"2"}},
                   {"channels", {"32"}}, {"context", {std::to_string(seq)}},
                   {"vocab", {"600"}},   {"tokens-per-step", {std::to_string(rows * seq)}}};
  given.merge(more);
  return run_options(given);
}

Machine cpu_of(int threads) { return {.architecture = CpuArchitecture{.threads = threads}}; }

PlannedRun planned_within(const RunOptions& o, int64_t batch, int64_t accumulate, size_t memory,
                          const Machine& machine) {
  TrainingConfig config = o.training;
  config.batch = batch;
  config.accumulate = accumulate;
  return RunPlanner(config, request_of(o, machine, {}), sample, machine).plan_within(memory);
}

// The fastest time of every split of the rows.
double brute_force(const RunOptions& o, size_t memory, const Machine& machine) {
  const int64_t rows = o.training.rows_per_step();
  double best = std::numeric_limits<double>::infinity();
  for (int64_t batch = 1; batch <= rows; ++batch) {
    if (rows % batch != 0) continue;
    const PlannedRun run = planned_within(o, batch, rows / batch, memory, machine);
    if (run.search->fits) best = std::min(best, run.foretold.seconds);
  }
  return best;
}

const StepSplit& chosen(const SplitChoice& choice) { return choice.all[choice.chosen]; }

TEST(SplitChoice, IsTheFastestOfAllSplits) {
  for (const char* dtype : {"f32", "bf16"}) {
    for (const int64_t rows : {12, 7, 16}) {
      if (rows > 12 && !nightly()) continue;
      const RunOptions own = options_of(rows, {{"dtype", {dtype}}});
      const Machine nominal = nominal_machine(cpu_of(8));
      const size_t all = planned_within(own, rows, 1, size_t{1} << 40, nominal).budget;
      const size_t one = planned_within(own, 1, rows, 1, nominal).budget;
      for (const size_t memory : {one, one + (all - one) / 8, one + (all - one) / 2, all}) {
        RunOptions o = own;
        const auto choice = choose_split(o, cpu_of(2), memory, sample);
        ASSERT_TRUE(choice && choice->fits());
        EXPECT_EQ(choice->threads, 8);
        EXPECT_EQ(o.training.batch, chosen(*choice).batch);
        EXPECT_EQ(o.training.rows_per_step(), rows);
        EXPECT_DOUBLE_EQ(chosen(*choice).seconds, brute_force(own, memory, nominal));
        EXPECT_TRUE(chosen(*choice).is_searched);
      }
    }
  }
}

TEST(SplitChoice, IsTheSameForAnyClockAndUpToEightThreads) {
  const RunOptions own = options_of(48);
  const size_t one = planned_within(own, 1, 48, 1, nominal_machine(cpu_of(8))).budget;
  RunOptions by_eight = own;
  choose_split(by_eight, cpu_of(8), 2 * one, sample);
  for (Machine machine : {cpu_of(1), cpu_of(3), cpu_of(8)}) {
    machine.f32_flops = 1e9 * std::get<CpuArchitecture>(machine.architecture).threads;
    RunOptions o = own;
    choose_split(o, machine, 2 * one, sample);
    EXPECT_EQ(o.training.batch, by_eight.training.batch);
  }
}

// A budget without room for the workspaces of eight threads has a split for fewer.
TEST(SplitChoice, IsForFewerThreadsWhereEightDoNotFit) {
  const RunOptions own = options_of(6);
  const auto least_with = [&](int threads) {
    return planned_within(own, 1, 6, 1, nominal_machine(cpu_of(threads))).budget;
  };
  ASSERT_LT(least_with(2), least_with(4));
  RunOptions o = own;
  const auto choice = choose_split(o, cpu_of(2), least_with(2), sample);
  EXPECT_TRUE(choice->fits());
  EXPECT_EQ(choice->threads, 2);
}

TEST(SplitChoice, SaysWhatItsNeighboursTake) {
  RunOptions o = options_of(64);
  const size_t one = planned_within(o, 1, 64, 1, nominal_machine(cpu_of(8))).budget;
  const SplitChoice choice = *choose_split(o, cpu_of(2), one + one / 4, sample);
  const std::vector<StepSplit> beside = choice.neighbours();
  ASSERT_EQ(choice.all.size(), 7u);
  ASSERT_FALSE(choice.all.back().fits);
  ASSERT_EQ(beside.size(), 2u);
  EXPECT_EQ(beside[0].batch * 2, o.training.batch);
  EXPECT_EQ(beside[1].batch, o.training.batch * 2);
  for (const StepSplit& split : choice.all) {
    EXPECT_EQ(split.batch * split.accumulate, 64);
    EXPECT_TRUE(!split.fits || split.seconds >= chosen(choice).seconds);
  }
}

TEST(SplitChoice, IsTheSmallestWhereNoneFits) {
  RunOptions o = options_of(12);
  const SplitChoice choice = *choose_split(o, cpu_of(1), 1000, sample);
  EXPECT_FALSE(choice.fits());
  EXPECT_EQ(o.training.batch, 1);
  RunRequest request = request_of(o, cpu_of(1), {});
  request.steps.budget = 1000;
  const PlannedRun run = RunPlanner(o.training, request, sample, cpu_of(1)).plan();
  EXPECT_EQ(std::string(run.refusal->what()).find("may fit"), std::string::npos);
}

// Rows of many divisors, of which most are too large for the memory.
TEST(SplitChoice, SearchesFewOfManySplits) {
  RunOptions o = options_of(5040);
  const size_t one = planned_within(o, 1, 2, 1, nominal_machine(cpu_of(8))).budget;
  const SplitChoice choice = *choose_split(o, cpu_of(2), 4 * one, sample);
  EXPECT_EQ(choice.all.size(), 60u);
  EXPECT_TRUE(choice.fits());
  EXPECT_LE(choice.searched(), 16);
}

TEST(SplitChoice, OfAHandPolicyIsWithinTheMemory) {
  RunOptions o = options_of(16, {{"recompute", {"norms"}}, {"chunk-loss", {"64"}}});
  const size_t one = planned_within(o, 1, 16, 1, nominal_machine(cpu_of(8))).budget;
  const SplitChoice choice = *choose_split(o, cpu_of(2), one + one / 3, sample);
  ASSERT_TRUE(choice.fits());
  const PlannedRun run = planned_within(o, o.training.batch, o.training.accumulate, one + one / 3,
                                        nominal_machine(cpu_of(8)));
  EXPECT_TRUE(run.search->fits);
  EXPECT_EQ(run.chunks.loss_rows, 64);
}

TEST(SplitChoice, IsNotForRunsWithABatchOrThatResume) {
  RunOptions o = run_options({});
  EXPECT_FALSE(choose_split(o, cpu_of(1), 1000, sample).has_value());
  o = run_options({{"tokens-per-step", {"7"}}, {"resume", {"true"}}});
  EXPECT_FALSE(choose_split(o, cpu_of(1), 1000, sample).has_value());
}

}  // namespace
}  // namespace spool::testing
