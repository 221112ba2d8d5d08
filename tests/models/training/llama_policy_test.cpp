// runs: numbers
// Policies on models of the Llama family: what they recompute, and MLPs in chunks.  The losses are
// those of keeping every value in one chunk, and the peaks are foretold.

#include <map>

#include "spool/models/families/families.h"
#include "spool/models/families/llama_config.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

// Like Qwen3, so with both norms.
TrainingConfig small_llama() {
  TrainingConfig config = small();
  config.model = LlamaConfig{.type = LlamaType::qwen3,
                             .layers = 2,
                             .channels = 24,
                             .inner = 40,
                             .context = 32,
                             .vocabulary = 50,
                             .heads = {.query = 4, .key = 2},
                             .head = 8,
                             .qk_norm = true};
  config.steps = 2;
  return config;
}

Policy recomputing_list(const char* list) {
  Policy policy;
  set_recompute(policy, list);
  return policy;
}

// The placement of the outputs of each kind of op, which is the same for all ops of a kind.
std::map<std::string, std::vector<Placement>> placements(const char* recompute) {
  const TrainingConfig config = small_llama();
  const Plan plan = make_plans(config, recomputing_list(recompute)).step;
  const RehearsedTape tape = rehearse_tape(describe_step(config), {}, Machine{});
  std::map<std::string, std::vector<Placement>> all;
  for (const Node& node : tape.program.nodes) {
    std::vector<Placement> of_node;
    for (const ValueId v : node.outputs) of_node.push_back(placement_of(plan, v));
    const auto [known, is_new] = all.emplace(node.op->name(), of_node);
    EXPECT_EQ(known->second, of_node) << node.op->name();
  }
  return all;
}

TEST(LlamaPolicy, RecomputesNormsButTheirStatistics) {
  using enum Placement;
  using Each = std::vector<Placement>;
  auto norms = placements("norms");
  EXPECT_EQ(norms["rms_norm"], (Each{recompute, keep}));
  EXPECT_EQ(norms["head_norm"], (Each{recompute, keep}));
  EXPECT_EQ(norms["swiglu"], Each{keep});
  auto both = placements("norms,gelu");
  EXPECT_EQ(both["rms_norm"], (Each{recompute, keep}));
  EXPECT_EQ(both["head_norm"], (Each{recompute, keep}));
  EXPECT_EQ(both["swiglu"], Each{recompute});
  for (const char* kept : {"linear", "rope", "add"}) EXPECT_EQ(both[kept].front(), keep) << kept;
}

// Trains under the policy in the foretold peak, and fails in less.
Losses train_within_foretold(const TrainingConfig& config, const Policy& policy) {
  const Machine slow = slow_machine(this_processor(2));
  const PlannedRun run = plan_run(config, {.policy = policy}, slow);
  const size_t foretold = run.foretold.memory.peak;
  CpuStream stream(foretold, 2);
  Losses losses = train(run.config, run.plans, stream);
  EXPECT_EQ(losses.peak, foretold);
  EXPECT_EQ(losses.host_peak, run.foretold.host.peak);
  CpuStream less(foretold - Arena::granule, 2);
  expect_error(ErrorKind::memory, {}, [&] { train(run.config, run.plans, less); });
  return losses;
}

TEST(LlamaPolicy, HasTheLossesOfKeepingAllAndThePeaksForetold) {
  TrainingConfig config = small_llama();
  config.accumulate = 2;
  config.dropout = 0.1f;
  config.chunks.loss_rows = 7;
  CpuStream ample(size_t{256} << 20, 2);
  const Losses kept = train(config, ample);
  for (const char* list : {"none", "norms", "norms,gelu", "norms,gelu,attention", "block"}) {
    for (const Offloading offload : {Offloading::none, Offloading::all}) {
      SCOPED_TRACE(sentence(list, ", ", name(offload)));
      Policy policy = recomputing_list(list);
      policy.offload = offload;
      policy.min_offload_bytes = 1;
      EXPECT_EQ(train_within_foretold(config, policy), kept);
    }
  }
}

TEST(LlamaPolicy, TakesLessMemoryTheMoreItRecomputes) {
  TrainingConfig config;
  config.model = model_preset("smollm2-135m")->config;
  config.chunks.loss_rows = 512;
  size_t before = MetaStream::unlimited;
  for (const char* list : {"none", "norms", "norms,gelu", "norms,gelu,attention", "block"}) {
    const StepPlans plans = make_plans(config, recomputing_list(list));
    const size_t peak = rehearse_training(config, plans, Machine{}).memory.peak;
    EXPECT_LT(peak, before) << list;
    before = peak;
  }
}

// 60 rows, in chunks of 16, 16, 16, 12.
TEST(LlamaChunkMlp, HasTheLossesOfOneChunkAndThePeakForetold) {
  TrainingConfig whole = small();
  whole.model = model_preset("llama-tiny")->config;
  whole.steps = 2;
  TrainingConfig chunks = whole;
  chunks.chunks.mlp_rows = 16;
  CpuStream ample(size_t{256} << 20, 2);
  const Losses expected = train(whole, ample);
  for (const char* list : {"none", "norms,gelu", "block"}) {
    SCOPED_TRACE(list);
    const Plan plan = make_plans(chunks, recomputing_list(list)).step;
    EXPECT_EQ(std::ranges::count_if(plan.regions, [](const Region& r) { return r.chunks > 1; }), 4);
    const Losses losses = train_within_foretold(chunks, recomputing_list(list));
    ASSERT_EQ(losses.losses.size(), expected.losses.size());
    for (size_t i = 0; i < losses.losses.size(); ++i) {
      EXPECT_NEAR(losses.losses[i], expected.losses[i], 1e-6 * expected.losses[i]);
    }
    EXPECT_NEAR(losses.validation, expected.validation, 1e-6 * expected.validation);
  }
  const auto peak = [](const TrainingConfig& config) {
    const StepPlans plans = make_plans(config, recomputing_list("block"));
    return rehearse_training(config, plans, Machine{}).memory.peak;
  };
  whole.batch = chunks.batch = 16;
  whole.seq = chunks.seq = 256;
  EXPECT_LT(peak(chunks), peak(whole));
}

}  // namespace
}  // namespace spool::testing
