// runs: numbers
// Evaluations that are planned to fit into a budget.

#include "spool/models/inference/evaluation_plan.h"
#include "spool/models/families/gpt2.h"

#include <algorithm>

#include "spool/models/inference/loaded_model.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/integer.h"
#include "tests/models/data/token_list.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const Machine two_cpu_threads{.architecture = this_processor(2)};

// 60 rows.
EvaluationShape some_shape(DType dtype) {
  return {.model =
              Gpt2Config{.layers = 2, .heads = 2, .channels = 64, .context = 30, .vocabulary = 900},
          .dtype = dtype,
          .batch = 2,
          .seq = 30};
}

// The report of two batches.
Report foretold_report(const EvaluationShape& shape, const ChunkRows& rows) {
  const Plan plan = plan_evaluation(shape, rows);
  return rehearse(two_cpu_threads,
                  [&](Stream& stream) { rehearse_evaluation(shape, plan, stream); });
}

// The mean loss of random weights on three batches, and the peak of the stream.
struct MeasuredEvaluation {
  double loss = 0;
  size_t peak = 0;
};
MeasuredEvaluation measured_within(const EvaluationShape& shape, const Plan& plan, size_t budget) {
  CpuStream stream(budget, 2);
  MeasuredEvaluation result;
  {
    Evaluation evaluation(shape, plan, stream);
    evaluation.model().initialise(3);
    const ValidationRows rows(counting(5 * shape.seq + 8, /*vocabulary=*/900), shape.seq);
    result.loss = evaluation.evaluator().mean_loss(rows);
    evaluation.evaluator().rehearse_losses();
    stream.synchronize();
  }
  result.peak = stream.memory().peak;
  return result;
}

constexpr size_t ample = size_t{64} << 20;

int64_t chunks_of(const EvaluationShape& shape, int64_t rows) {
  return rows == 0 ? 1 : ceil_div(shape.batch * shape.seq, rows);
}

TEST(EvaluationPlan, HasTheFewestChunksThatFit) {
  const EvaluationShape shape = some_shape(DType::f32);
  std::vector<std::pair<size_t, int64_t>> all;  // peaks, and chunks of the loss and of an MLP
  for (const int64_t loss : {0, 30, 20, 15, 12, 10, 6, 3, 1}) {
    for (const int64_t mlp : {0, 30, 20}) {
      all.emplace_back(foretold_report(shape, {.loss = loss, .mlp = mlp}).memory.peak,
                       chunks_of(shape, loss) + chunks_of(shape, mlp));
    }
  }
  for (const auto& [limit, own] : all) {
    int64_t fewest = own;
    for (const auto& [peak, chunks] : all) {
      if (peak <= limit) fewest = std::min(fewest, chunks);
    }
    const PlannedEvaluation planned = plan_evaluation_within(limit, shape, two_cpu_threads);
    EXPECT_LE(planned.foretold.memory.peak, limit);
    const auto [loss, mlp] = planned.rows;
    EXPECT_LE(chunks_of(shape, loss) + chunks_of(shape, mlp), fewest) << limit;
  }
  EXPECT_EQ(plan_evaluation_within(ample, shape, two_cpu_threads).rows, ChunkRows{});
  const PlannedEvaluation min = plan_evaluation_within(1, shape, two_cpu_threads);
  EXPECT_EQ(min.foretold.memory.peak, std::ranges::min(all).first);
}

// With any rows from 16 on, and with fewer where the kernels of few rows add in the same order.
TEST(EvaluationPlan, HasTheSameBitsInAnyChunks) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const EvaluationShape shape = some_shape(dtype);
    const auto loss = [&](const ChunkRows& rows) {
      const Plan plan = plan_evaluation(shape, rows);
      return measured_within(shape, plan, ample).loss;
    };
    const double whole = loss({});
    const std::vector<ChunkRows> all{
        {.loss = 20}, {.loss = 30}, {.mlp = 20}, {.mlp = 30}, {.loss = 20, .mlp = 20}};
    for (const ChunkRows& rows : all) {
      EXPECT_EQ(loss(rows), whole) << rows.loss << ' ' << rows.mlp;
    }
    for (const int64_t rows : {1, 4, 8}) {
      EXPECT_NEAR(loss({.loss = rows}), whole, 1e-6 * whole) << rows;
    }
  }
}

TEST(EvaluationPlan, HasThePeakForetoldAndTheLossOfOneChunk) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const EvaluationShape shape = some_shape(dtype);
    const double whole = measured_within(shape, {}, ample).loss;
    for (size_t limit = ample; limit > 0;) {
      const PlannedEvaluation planned = plan_evaluation_within(limit, shape, two_cpu_threads);
      const size_t peak = planned.foretold.memory.peak;
      if (peak > limit) break;
      SCOPED_TRACE(sentence(planned.rows.loss, ", ", planned.rows.mlp, ", ", name(dtype)));
      const MeasuredEvaluation result = measured_within(shape, planned.plan, peak);
      EXPECT_EQ(result.peak, peak);
      EXPECT_NEAR(result.loss, whole, 1e-6 * whole);
      expect_error(ErrorKind::memory, {},
                   [&] { measured_within(shape, planned.plan, peak - Arena::granule); });
      limit = peak - 1;
    }
  }
}

// 8192 tokens at a time, of GPT-2 124M.
TEST(EvaluationPlan, FitsALongContextIntoATwelfthOfItsWork) {
  EvaluationShape shape{.batch = 1, .seq = 8192};
  shape.model = shape.model.with("context", shape.seq);
  constexpr size_t budget = size_t{624} << 20;
  const Report whole = foretold_report(shape, {});
  const PlannedEvaluation planned = plan_evaluation_within(budget, shape, two_cpu_threads);
  const Report& chunks = planned.foretold;
  EXPECT_LE(chunks.memory.peak, budget);
  const auto work = [](const Report& r) {
    const auto& by = r.memory.at_peak_by;
    return static_cast<double>(r.memory.peak - by[Purpose::parameter]);
  };
  EXPECT_LE(work(chunks), 0.08 * work(whole));
  EXPECT_LE(chunks.seconds, 1.05 * whole.seconds / 2);  // `whole` is two batches
}

TEST(EvaluationPlan, TakesFewRehearsals) {
  for (const int64_t tokens : {1, 15, 40, 1000, 1 << 20}) {
    for (const int64_t loss : {1, 100, 10'000}) {
      int calls = 0;
      const auto peak = [&](const ChunkRows& rows) {
        ++calls;
        const auto share = [&](int64_t r) { return static_cast<size_t>(r == 0 ? tokens : r); };
        return 5000 + static_cast<size_t>(loss) * share(rows.loss) + 64 * share(rows.mlp);
      };
      for (const size_t limit : {size_t{0}, size_t{100'000}, size_t{1} << 40}) {
        calls = 0;
        const ChunkRows rows = fewest_chunks(tokens, limit, peak);
        EXPECT_LE(calls, 36);
        EXPECT_TRUE(rows.mlp == 0 || rows.mlp >= 16);
      }
      EXPECT_EQ(fewest_chunks(tokens, size_t{1} << 40, peak), ChunkRows{});
    }
  }
}

class BudgetOfLoadedModel : public ::testing::Test {
 protected:
  BudgetOfLoadedModel() {
    CpuStream stream(ample, 2);
    const auto model = shape_.model.make(DType::f32, stream);
    model->initialise(3);
    save_model(d_.path(), *model);
  }
  LoadedModel open(size_t memory) const {
    return {ModelFile(d_.path()),
            {.batch = shape_.batch, .seq = shape_.seq, .threads = 2, .memory = memory}};
  }

  const EvaluationShape shape_ = some_shape(DType::f32);
  const TemporaryDirectory d_;
};

TEST_F(BudgetOfLoadedModel, IsMetAndTheSmallestSuffices) {
  EXPECT_FALSE(open(0).planned());
  EXPECT_EQ(open(ample).planned()->rows, ChunkRows{});
  const ErrorFields fields =
      expect_error(ErrorKind::memory, {"this evaluation", "in the budget", "; a larger budget"},
                   [&] { open(1000); });
  EXPECT_EQ(fields.settings, (std::vector<std::string>{"memory", "batch", "seq", "threads"}));
  EXPECT_EQ(fields.capacity, 1000u);
  expect_error(ErrorKind::memory, {sentence(fields.needed, " bytes"), "; a smaller batch, "},
               [&] { open(fields.needed - 1); });
  LoadedModel min = open(fields.needed);
  EXPECT_EQ(min.planned()->foretold.memory.peak, fields.needed);
  const ValidationRows rows(counting(5 * shape_.seq, /*vocabulary=*/900), shape_.seq);
  EXPECT_GT(min.evaluator().mean_loss(rows), 0);
  EXPECT_EQ(min.memory().capacity, fields.needed);
  EXPECT_LE(min.memory().peak, fields.needed);
}

// Without chunks, the longest rows that GPT-2 124M can evaluate in 2 GiB are of 7936 tokens, by
// rehearsals.
TEST(LongEvaluation, NightlyOfFourTimesTheTokensFits) {
  if (!nightly()) GTEST_SKIP() << "it takes minutes";
  constexpr size_t budget = size_t{2} << 30;
  EvaluationShape shape{.model = *gpt2_preset("gpt2-124m"), .batch = 1, .seq = 4 * 7936};
  shape.model = shape.model.with("context", shape.seq);
  const PlannedEvaluation planned = plan_evaluation_within(budget, shape, two_cpu_threads);
  ASSERT_LE(planned.foretold.memory.peak, budget);
  CpuStream stream(planned.foretold.memory.peak, 2);
  Evaluation evaluation(shape, planned.plan, stream);
  evaluation.model().initialise(3);
  evaluation.evaluator().rehearse_mean_loss();
  stream.synchronize();
  EXPECT_EQ(stream.memory().peak, planned.foretold.memory.peak);
}

}  // namespace
}  // namespace spool::testing
