// runs: numbers
// The MLPs of a run's blocks in chunks: the losses of one chunk, within the peak foretold.

#include <nlohmann/json.hpp>

#include "spool/models/training/run_options.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/files/json.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

// 60 rows, in chunks of 16, 16, 16, 12.
TrainingConfig in_chunks(int64_t rows = 16) {
  TrainingConfig config = small();
  config.steps = 2;
  config.chunks.mlp_rows = rows;
  return config;
}

int chunked_regions(const Plan& plan) {
  return static_cast<int>(
      std::ranges::count_if(plan.regions, [](const Region& r) { return r.chunks > 1; }));
}

Policy recomputing(const char* list) {
  Policy policy;
  set_recompute(policy, list);
  return policy;
}

TEST(ChunkMlp, HasTheLossesOfOneChunkAndThePeakForetold) {
  const Machine slow = slow_machine(this_processor(2));
  for (const int64_t accumulate : {1, 3}) {
    for (const int64_t loss_chunk : {0, 7}) {
      TrainingConfig config = in_chunks();
      config.accumulate = accumulate;
      config.chunks.loss_rows = loss_chunk;
      config.dropout = 0.1f;
      TrainingConfig whole = config;
      whole.chunks.mlp_rows = 0;
      CpuStream ample(size_t{256} << 20, 2);
      const Losses expected = train(whole, ample);
      for (const char* recompute : {"none", "norms,gelu,attention", "block"}) {
        for (const Offloading offload : {Offloading::none, Offloading::all}) {
          Policy policy = recomputing(recompute);
          policy.offload = offload;
          policy.min_offload_bytes = 1;
          const PlannedRun run = plan_run(config, {.policy = policy}, slow);
          EXPECT_EQ(chunked_regions(run.plans.step), 2);
          EXPECT_NO_THROW(check_plan(run.plans.step));
          const size_t foretold = run.foretold.memory.peak;
          CpuStream stream(foretold, 2);
          const Losses losses = train(run.config, run.plans, stream);
          EXPECT_EQ(losses.peak, foretold) << recompute << ' ' << name(offload);
          EXPECT_EQ(losses.host_peak, run.foretold.host.peak);
          for (size_t i = 0; i < losses.losses.size(); ++i) {
            EXPECT_NEAR(losses.losses[i], expected.losses[i], 1e-6 * expected.losses[i]);
          }
          EXPECT_NEAR(losses.validation, expected.validation, 1e-6 * expected.validation);
          CpuStream less(foretold - Arena::granule, 2);
          expect_error(ErrorKind::memory, {}, [&] { train(run.config, run.plans, less); });
          EXPECT_EQ(less.memory().live, 0u);
        }
      }
    }
  }
}

TEST(ChunkMlp, TakesNoMemoryForAllRowsAtOnce) {
  TrainingConfig config;
  config.batch = 4;
  config.chunks.loss_rows = 512;
  const auto peak = [&](int64_t rows) {
    config.chunks.mlp_rows = rows;
    const StepPlans plans = make_plans(config, recomputing("block"));
    return rehearse_training(config, plans, Machine{}).memory.peak;
  };
  EXPECT_LT(peak(512), peak(0));
  EXPECT_EQ(peak(4 * config.seq), peak(0));
}

// GPT-2 124M with recomputed blocks, for an H200, without the derivatives of scores that cuDNN's
// deterministic backward stores where the memory has room for them.
Report rehearsed_on_h200(int64_t batch, int64_t loss_chunk, int64_t mlp_chunk) {
  TrainingConfig config;
  config.dtype = DType::bf16;
  config.batch = batch;
  config.chunks.loss_rows = loss_chunk;
  config.chunks.mlp_rows = mlp_chunk;
  config.nondeterministic = true;
  const StepRequest request{.policy = recomputing("block")};
  return plan_run(config, request, *named_machine("h200"), SampleLength{}).foretold;
}

size_t work_at_peak(const Report& report) {
  const auto& by = report.memory.at_peak_by;
  return by[Purpose::activation] + by[Purpose::workspace];
}

TEST(ChunkMlp, SavesAThirdOfTheWorkAtThePeakForASmallPart) {
  const Report whole = rehearsed_on_h200(32, 2048, 0), chunks = rehearsed_on_h200(32, 2048, 8192);
  constexpr size_t inputs_of_blocks = size_t{12} * 32 * 1024 * 768 * 2;
  const auto work = [&](const Report& r) {
    return static_cast<double>(work_at_peak(r) - inputs_of_blocks);
  };
  EXPECT_LE(work(chunks), 0.65 * work(whole));
  EXPECT_LE(static_cast<double>(chunks.memory.peak), 0.94 * static_cast<double>(whole.memory.peak));
  EXPECT_LE(chunks.seconds, 1.06 * whole.seconds);
}

TEST(ChunkMlp, DoesNotRaiseThePeakOfSmallBatches) {
  const size_t whole = rehearsed_on_h200(4, 512, 0).memory.peak;
  for (const int64_t rows : {256, 512, 1024}) {
    EXPECT_LE(rehearsed_on_h200(4, 512, rows).memory.peak, whole) << rows;
  }
}

TEST(ChunkMlp, IsNoRegionWhereAllRowsFit) {
  for (const int64_t rows : {0, 60, 1000}) {
    const StepPlans plans = make_plans(in_chunks(rows), recomputing("block"));
    EXPECT_EQ(plans.step.regions.size(), 2u) << rows;
  }
}

TEST(ChunkMlp, IsThatOfTheGivenPlan) {
  const TrainingConfig sixteen = in_chunks();
  const Plan given = make_plans(sixteen, recomputing("block")).step;
  const auto planned = [&](const TrainingConfig& config, const Plan& plan) {
    return plan_run(config, {.plan = plan}, Machine{}, SampleLength{}).plans.step;
  };
  EXPECT_EQ(planned(sixteen, given), given);
  EXPECT_EQ(planned(in_chunks(19), given), given);  // 4 chunks as well
  for (const int64_t other : {0, 20, 8}) {
    const auto fields =
        expect_error(ErrorKind::invalid, {"plan", "MLPs", "number of rows it was made with"},
                     [&] { planned(in_chunks(other), given); });
    EXPECT_EQ(fields.settings, (std::vector<std::string>{"plan", "chunk-mlp"}));
  }
  Plan fewer = given;
  std::erase_if(fewer.regions, [](const Region& r) { return r.chunks > 1 && r.first < 11; });
  expect_error(ErrorKind::invalid, {"MLPs"}, [&] { planned(sixteen, fewer); });
}

TEST(ChunkMlp, RefusesRowsThatCannotBe) {
  for (const int64_t rows : {int64_t{-1}, int64_t{1} << 31}) {
    const auto fields = expect_error(ErrorKind::invalid, {"the rows of a chunk of an MLP"},
                                     [&] { in_chunks(rows).validate(); });
    EXPECT_EQ(fields.settings, std::vector<std::string>{"chunk-mlp"});
  }
}

TEST(ChunkMlp, IsPartOfAStoredRunAndZeroInAnOlderOne) {
  RunOptions options;
  options.model = "gpt2-tiny";
  options.training = in_chunks();
  nlohmann::json stored = configuration(options);
  EXPECT_EQ(stored["chunk-mlp"], 16);
  const auto adopted = [&](int64_t rows, bool given) {
    RunOptions resumed = options;
    resumed.training.chunks.mlp_rows = rows;
    if (given) resumed.given.insert("chunk-mlp");
    adopt(resumed, JsonField(stored, "run.json"));
    return resumed.training.chunks.mlp_rows;
  };
  EXPECT_EQ(adopted(8, /*given=*/false), 16);
  EXPECT_EQ(adopted(16, /*given=*/true), 16);
  expect_error(ErrorKind::invalid, {"chunk-mlp 8", "it has 16"}, [&] { adopted(8, true); });
  stored.erase("chunk-mlp");
  EXPECT_EQ(adopted(8, /*given=*/false), 0);
  EXPECT_EQ(adopted(0, /*given=*/true), 0);
  expect_error(ErrorKind::invalid, {"chunk-mlp 8", "it has 0"}, [&] { adopted(8, true); });
  stored.erase("config");
  expect_error(ErrorKind::file, {"layers", "is missing"}, [&] { adopted(0, false); });
}

}  // namespace
}  // namespace spool::testing
