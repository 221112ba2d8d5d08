// runs: threads
// Texts and losses of a model that ranks share are those of one rank.

#include "spool/models/inference/batch_generator.h"
#include "spool/models/inference/generator.h"

#include "spool/models/families/gpt2.h"
#include "spool/models/families/llama.h"
#include "spool/models/inference/evaluation.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/models/data/token_list.h"
#include "tests/models/families/gpt2_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t budget_of_rank = size_t{64} << 20;
constexpr int64_t heads = 4, context = 48;

ModelConfig model_of(const std::string& family) {
  if (family == "gpt2") {
    return Gpt2Config{
        .layers = 2, .heads = heads, .channels = 32, .context = context, .vocabulary = 300};
  }
  return LlamaConfig{.layers = 2,
                     .channels = 32,
                     .inner = 48,
                     .context = context,
                     .vocabulary = 300,
                     .heads = {.query = 2 * heads, .key = heads},
                     .head = 8};
}

struct OnMesh {
  std::string mesh;  // empty: one rank alone
  int ranks() const { return mesh.empty() ? 1 : parse_mesh(mesh).ranks(); }
  EvaluationShape shape(const std::string& family, DType dtype) const {
    EvaluationShape shape{.model = model_of(family), .dtype = dtype, .batch = 4, .seq = context};
    if (!mesh.empty()) shape.shards = shards(mesh, "megatron");
    return shape;
  }
  // work(stream, rank) on each rank.
  void run(const std::function<void(Stream&, int)>& work) const {
    run_ranks(ranks(), [&](const std::shared_ptr<Communicator>& own) {
      CpuStream stream(budget_of_rank, 1);
      if (!mesh.empty()) stream.join(own);
      work(stream, own->rank());
    });
  }
  Machine machine(int rank) const {
    Machine machine{.architecture = this_processor(1)};
    if (!mesh.empty()) machine.mesh = {.ranks = ranks(), .rank = rank};
    return machine;
  }
};

struct Texts {
  std::vector<std::vector<int32_t>> all = {};
  std::vector<size_t> peaks = {};  // by rank
};

constexpr int64_t prompt = 5, drawn = 60, texts = 3, drawn_of_each = 9;

// One text that is longer than its cache, then several that end at different times.
std::vector<std::vector<int32_t>> written(const PlacedEvaluation& e, Stream& stream) {
  std::vector<std::vector<int32_t>> all(1, some_text(prompt));
  Random random(4);
  Generator(e->model(), stream, context, e->shared())
      .extend(all.front(), drawn, {.temperature = 1}, random);
  std::vector<BatchGenerator::Row> rows;
  for (int64_t i = 0; i < texts; ++i)
    rows.push_back({some_text(prompt - i), Random(static_cast<uint64_t>(7 + i))});
  BatchGenerator(e->model(), stream, texts, prompt + drawn_of_each, e->shared())
      .extend(rows, drawn_of_each, {.temperature = 1}, [&](size_t text, int32_t) {
        return std::ssize(rows[text].tokens) < prompt + 3 * static_cast<int64_t>(text);
      });
  for (const auto& row : rows) all.push_back(row.tokens);
  return all;
}

Texts texts_on(const OnMesh& on, const std::string& family, DType dtype) {
  const EvaluationShape shape = on.shape(family, dtype);
  Texts found{.peaks = std::vector<size_t>(static_cast<size_t>(on.ranks()))};
  on.run([&](Stream& stream, int rank) {
    {
      const PlacedEvaluation e(shape, {}, stream);
      e->model().initialise(3);
      if (rank == 0) {
        found.all = written(e, stream);
      } else {
        follow_reader(e->model(), stream, *e->shared());
        follow_reader(e->model(), stream, *e->shared());
      }
      stream.synchronize();
    }
    found.peaks[static_cast<size_t>(rank)] = stream.memory().peak;
  });
  return found;
}

size_t foretold_peak(const OnMesh& on, const std::string& family, DType dtype, int rank) {
  const EvaluationShape shape = on.shape(family, dtype);
  const Report report = rehearse_totals(on.machine(rank), [&](MetaStream& stream) {
    const PlacedEvaluation e(shape, {}, stream);
    e->model().initialise(3);
    Generator(e->model(), stream, context, e->shared()).rehearse(prompt, drawn);
    BatchGenerator(e->model(), stream, texts, prompt + drawn_of_each, e->shared())
        .rehearse(texts, prompt, drawn_of_each);
  });
  return report.memory.peak;
}

class SharedModel : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Family, SharedModel, ::testing::Values("gpt2", "llama"),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(SharedModel, WritesTheTextsOfOneRankInTheForetoldMemory) {
  const Texts alone = texts_on({}, GetParam(), DType::f64);
  for (const char* mesh : {"tensor=2", "tensor=4", "2x2"}) {
    SCOPED_TRACE(mesh);
    const OnMesh on{mesh};
    const Texts found = texts_on(on, GetParam(), DType::f64);
    EXPECT_EQ(found.all, alone.all);
    for (int r = 0; r < on.ranks(); ++r) {
      EXPECT_EQ(found.peaks[static_cast<size_t>(r)], foretold_peak(on, GetParam(), DType::f64, r));
    }
    if (finds_races()) return;
  }
}

TEST_P(SharedModel, KeepsAPartOfTheCacheByHeads) {
  const OnMesh on{"tensor=4"};
  const EvaluationShape shape = on.shape(GetParam(), DType::f32);
  on.run([&](Stream& stream, int) {
    const PlacedEvaluation e(shape, {}, stream);
    const KeyValueCache cache = SharedPasses(e->model(), *e->shared()).make_cache(2, 16);
    const KeyValueLayer layer = cache.layer(1);
    const int64_t head = e->model().shape().head;
    EXPECT_EQ(layer.keys.shape(), (Shape{2, heads / 4, 16, head}));
    EXPECT_EQ(layer.values.shape(), layer.keys.shape());
    EXPECT_EQ(layer.whole.shape, (Shape{2, heads, 16, head}));
  });
}

struct Losses {
  double mean = 0;
  size_t peak = 0;  // of rank 0
};

Losses losses_on(const OnMesh& on, EvaluationShape shape, const ChunkRows& chunks) {
  shape.chunks = chunks;
  const Plan plan = shape.shards ? Plan{} : plan_evaluation(shape, chunks);
  Losses found;
  on.run([&](Stream& stream, int rank) {
    // Of each rank, as it counts what is read.
    const ValidationRows rows(counting(9 * context + 5, /*vocabulary=*/300), context);
    double mean = 0;
    {
      const PlacedEvaluation e(shape, plan, stream);
      e->model().initialise(3);
      mean = e->evaluator().mean_loss(rows);
      e->evaluator().rehearse_losses();
      stream.synchronize();
    }
    if (rank == 0) found = {.mean = mean, .peak = stream.memory().peak};
  });
  const Report foretold = rehearse_totals(on.machine(0), [&](MetaStream& stream) {
    const PlacedEvaluation e(shape, plan, stream);
    e->model().initialise(3);
    e->evaluator().rehearse_mean_loss();
    e->evaluator().rehearse_losses();
  });
  EXPECT_EQ(found.peak, foretold.memory.peak);
  return found;
}

TEST_P(SharedModel, HasTheLossOfOneRankInAnyChunks) {
  const double alone = losses_on({}, OnMesh{}.shape(GetParam(), DType::f64), {}).mean;
  for (const char* mesh : {"tensor=2", "2x2"}) {
    SCOPED_TRACE(mesh);
    const OnMesh on{mesh};
    const EvaluationShape shape = on.shape(GetParam(), DType::f64);
    const Losses whole = losses_on(on, shape, {}),
                 chunked = losses_on(on, shape, {.loss = 24, .mlp = 48});
    EXPECT_NEAR(whole.mean, alone, 1e-12);
    EXPECT_NEAR(chunked.mean, alone, 1e-12);
    EXPECT_LE(chunked.peak, whole.peak);
    if (on.ranks() == 2) {
      EXPECT_LT(chunked.peak, whole.peak);
    }
    if (finds_races()) return;
  }
}

}  // namespace
}  // namespace spool::testing
