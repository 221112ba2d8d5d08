// runs: threads, alone
// Under random plans for saved values, with random delays of every queue, the numbers are those of
// keeping all to the bit, and the peaks are those foretold to the byte.

#include <cstdlib>

#include "spool/models/families/llama_config.h"
#include "tests/autograd/op_samples.h"
#include "tests/autograd/plan_testing.h"
#include "tests/end_to_end/model_step.h"

namespace spool::testing {
namespace {

// Set before any stream is made.
const bool delayed = [] {
  ::setenv("SPOOL_CPU_DELAY", "100", /*overwrite=*/0);
  return true;
}();

#ifdef NDEBUG
constexpr bool optimised = true;
#else
constexpr bool optimised = false;  // as in builds for sanitizers
#endif

const int plans = nightly() ? 200 : optimised ? 50 : 20;

class OpUnderPlans : public ::testing::TestWithParam<OpSample> {};
INSTANTIATE_TEST_SUITE_P(Op, OpUnderPlans, ::testing::ValuesIn(op_samples()),
                         [](const auto& sample) { return sample.param.name; });

TEST_P(OpUnderPlans, HasTheBitsOfKeepingAll) {
  const OpSample& sample = GetParam();
  const PlannedStep step = [&](Stream& stream, TapeOptions options) {
    SampleRun run(sample, stream,
                  {.dtype = DType::f32, .tape = std::move(options), .through_gelu = true});
    run.forward();
    std::vector<Tensor> results;
    for (const Var& y : run.outputs()) results.push_back(y.tensor());
    run.backward();
    for (const Tensor& t : run.gradient_tensors()) results.push_back(t);
    return stream.device().type == DeviceType::meta ? std::vector<Tensor>() : results;
  };
  MetaStream stream(Machine{});
  SampleRun run(sample, stream, {.dtype = DType::f32, .through_gelu = true});
  run.forward();
  run.backward();
  const Program& program = run.tape().program();
  expect_as_kept(step, plans, {}, [&](Random& r) { return random_plan(program, r); });
}

TEST(Gpt2UnderPlans, HasTheBitsOfKeepingAll) { expect_as_kept(ModelStep{}, plans, {}); }

TEST(Gpt2UnderPlans, OfPackedRowsHasTheBitsOfKeepingAll) {
  expect_as_kept(ModelStep{.packed = true}, plans, {});
}

// Plain, with biases of queries, keys and values, and with norms of queries and keys.
TEST(LlamaUnderPlans, HasTheBitsOfKeepingAll) {
  for (const auto& [bias, norm] : {std::pair(false, false), {true, false}, {false, true}}) {
    const LlamaConfig config{.layers = 3,
                             .channels = 36,
                             .inner = 64,
                             .context = 24,
                             .vocabulary = 99,
                             .heads = {.query = 6, .key = 2},
                             .head = 6,
                             .qkv_bias = bias,
                             .qk_norm = norm,
                             .tied = bias};
    SCOPED_TRACE(sentence("bias ", bias, ", norm ", norm));
    expect_as_kept(ModelStep{.config = config, .packed = norm}, plans, {});
  }
}

// Adapters of some linears, each with dropout of its own.
TEST(AdaptersUnderPlans, HaveTheBitsOfKeepingAll) {
  const LoraConfig all{.rank = 4, .alpha = 8, .dropout = 0.2f};
  ModelStep gpt2{.packed = true};
  gpt2.config = gpt2.config.adapted(all);
  expect_as_kept(gpt2, plans, {});
  LoraConfig some = all;
  some.targets = {"q_proj", "v_proj", "gate_proj", "down_proj"};
  const ModelConfig llama = LlamaConfig{.layers = 3,
                                        .channels = 36,
                                        .inner = 64,
                                        .context = 24,
                                        .vocabulary = 99,
                                        .heads = {.query = 6, .key = 2},
                                        .head = 6};
  expect_as_kept(ModelStep{.config = llama.adapted(some)}, plans, {});
}

TEST(Gpt2UnderPlans, SlowHasTheBitsOfKeepingAllWith124MParameters) {
  expect_as_kept(ModelStep{.config = *gpt2_preset("gpt2-124m"), .B = 1, .T = 64},
                 nightly() ? 20 : 3, {});
}

}  // namespace
}  // namespace spool::testing
