// runs: numbers
// How ranks share each micro-batch is chosen: never slower than by hand, in any budget.

#include "spool/models/training/sharding_choice.h"

#include <gtest/gtest.h>

#include "spool/models/families/families.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/machines/machine.h"

namespace spool::testing {
namespace {

struct Case {
  const char *model, *mesh;
  int64_t batch, seq;
};
constexpr Case cases[] = {
    {"gpt2-124m", "4", 8, 1024}, {"gpt2-355m", "2x4", 2, 1024}, {"qwen2.5-0.5b", "2x2", 8, 1024}};

TrainingConfig config_of(const Case& c) {
  TrainingConfig config{.model = model_preset(c.model)->config.with("layers", 4),
                        .dtype = DType::bf16,
                        .batch = c.batch,
                        .seq = c.seq,
                        .ranks = parse_mesh(c.mesh).ranks()};
  config.shards = shards(c.mesh, "auto");
  return config;
}

Machine h200s(const Case& c) {
  Machine machine = *named_machine("h200");
  machine.mesh.ranks = parse_mesh(c.mesh).ranks();
  machine.mesh.link = {.seconds = 8e-6, .bytes_per_second = 450e9};
  return machine;
}

ShardingChoice chosen(const Case& c, size_t budget) {
  RunRequest request{.steps = {.choose = Choices{.placement = true}, .budget = budget}};
  return choose_sharding(config_of(c), c.mesh, request, {}, h200s(c));
}

// Of a policy, as a run with {shard} plans it.
PlannedRun by_hand(const Case& c, const char* policy, size_t budget) {
  TrainingConfig config = config_of(c);
  config.shards = shards(c.mesh, policy);
  const RunRequest request{.steps = {.choose = Choices{.placement = true}, .budget = budget}};
  return RunPlanner(config, request, {}, h200s(c)).plan();
}

TEST(ShardingChoice, IsNeverSlowerThanByHandInAnyBudget) {
  for (const Case& c : cases) {
    SCOPED_TRACE(sentence(c.model, " on ", c.mesh));
    const ShardingChoice free = chosen(c, 0);
    ASSERT_FALSE(free.all.empty());
    EXPECT_TRUE(free.best().planned->fits);
    size_t least = free.best().peak, most = least;
    for (const JudgedSharding& judged : free.all) {
      EXPECT_GE(judged.seconds, 0.995 * free.best().planned->seconds) << judged.name;
      least = std::min(least, judged.peak);
      most = std::max(most, judged.peak);
    }
    for (const size_t part : {1, 2}) {
      const size_t budget = least + (most - least) * part / 8;
      const ShardingChoice choice = chosen(c, budget);
      const auto& best = *choice.best().planned;
      for (const char* policy : {"none", "rows", "megatron", "megatron-rows"}) {
        PlannedRun run;
        try {
          run = by_hand(c, policy, budget);
        } catch (const Error&) {
          continue;  // rows that do not divide
        }
        if (run.refusal) continue;
        EXPECT_TRUE(best.fits) << policy;
        EXPECT_LE(best.seconds, 1.005 * run.foretold.seconds) << policy << " in " << budget;
      }
    }
  }
}

TEST(ShardingChoice, SaysWhatNeedsFewestBytesWhereNothingFits) {
  const Case c = cases[0];
  const ShardingChoice choice = chosen(c, size_t{1} << 20);
  EXPECT_FALSE(choice.best().planned->fits);
  for (const JudgedSharding& judged : choice.all) {
    ASSERT_TRUE(judged.planned) << judged.name;
    EXPECT_GE(judged.planned->peak, choice.best().planned->peak) << judged.name;
  }
}

}  // namespace
}  // namespace spool::testing
