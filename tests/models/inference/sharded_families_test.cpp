// runs: threads
// The loss and the gradients of a block of each family on ranks that share it, however its ops are
// cut and its parameters are stored.

#include "spool/models/families/gpt2.h"
#include "spool/models/families/llama.h"
#include "spool/planner/sharding/shard_candidates.h"
#include "tests/models/steps/sharding_testing.h"

namespace spool::testing {
namespace {

constexpr int64_t batch = 4, tokens = 16, vocabulary = 64;

class Block final : public StepModel {
 public:
  Block(const ModelConfig& config, Stream& stream)
      : model_(config.make(DType::f32, stream, tokens)) {
    const Spec ids{Shape{batch, tokens}, DType::i32};
    tokens_ = Tensor(ids, stream, {.name = "tokens", .purpose = Purpose::input});
    targets_ = Tensor(ids, stream, {.name = "targets", .purpose = Purpose::input});
  }
  Parameters& parameters() override { return model_->parameters(); }
  void initialise(uint64_t seed) override { model_->initialise(seed); }
  Var loss(Tape& tape) override {
    return model_->loss(tape.input(tokens_), tape.input(targets_), /*dropout=*/0.1F);
  }
  void upload_placeholder() override {
    Random random(/*seed=*/3);
    for (const Tensor* ids : {&tokens_, &targets_}) {
      std::vector<int32_t> drawn(batch * tokens);
      for (int32_t& id : drawn) id = static_cast<int32_t>(random.next() % vocabulary);
      write<int32_t>(*ids, drawn);
    }
  }

 private:
  std::shared_ptr<Model> model_;
  Tensor tokens_, targets_;
};

ModelConfig config_of(const std::string& family) {
  if (family == "gpt2") {
    return Gpt2Config{
        .layers = 1, .heads = 4, .channels = 32, .context = tokens, .vocabulary = vocabulary};
  }
  return LlamaConfig{.layers = 1,
                     .channels = 32,
                     .inner = 48,
                     .context = tokens,
                     .vocabulary = vocabulary,
                     .heads = {.query = 8, .key = 4},
                     .head = 8};
}

class FamiliesOnRanks : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Mesh, FamiliesOnRanks, ::testing::Values("2", "4", "8", "2x2", "2x2x2"),
                         [](const auto& mesh) { return "on_" + std::string(mesh.param); });

TEST_P(FamiliesOnRanks, HaveTheLossAndTheGradientsOfOneRank) {
  for (const char* family : {"gpt2", "llama"}) {
    SCOPED_TRACE(family);
    const ModelConfig config = config_of(family);
    const ComparedModel block([&](Stream& s) { return std::make_unique<Block>(config, s); },
                              /*targets=*/1);
    block.expect_as_one_rank_at_random(parse_mesh(GetParam()), nightly()       ? 100
                                                               : finds_races() ? 1
                                                                               : 2);
  }
}

// What a search finds runs: each candidate, on ranks that are threads.
TEST(CandidatesOnRanks, HaveTheLossAndTheGradientsOfOneRank) {
  const std::pair<const char*, const char*> cases[] = {
      {"gpt2", "2"}, {"gpt2", "4"}, {"gpt2", "2x2"}, {"llama", "4"}, {"llama", "2x2"}};
  for (const auto& [family, text] : cases) {
    if (finds_races() && std::string_view(text) != "2") continue;
    const ModelConfig config = config_of(family);
    const MeshAxes mesh = parse_mesh(text);
    const auto make = [&](Stream& s) { return std::make_unique<Block>(config, s); };
    const ComparedModel block(make, /*targets=*/1);
    MetaStream stream{Machine{}};
    const std::unique_ptr<Block> recorded = make(stream);
    const RecordedLoss loss = record_loss(*recorded, stream);
    const ShardCandidates found = shard_candidates(loss.program, mesh, mesh_machine("h200", mesh));
    EXPECT_GE(found.all.size(), 3U);
    for (const ShardCandidate& candidate : found.all) {
      SCOPED_TRACE(sentence(family, " on ", text, ", ", candidate.name));
      block.expect_as_one_rank(mesh, [&](const RecordedLoss&) { return candidate.choice.how; });
    }
  }
}

}  // namespace
}  // namespace spool::testing
