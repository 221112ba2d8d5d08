// runs: threads
// A transformer of which each rank has a part has the loss and the gradients of one rank, however
// its ops are cut.

#include "spool/autograd/sharding/sharded_model.h"

#include <map>

#include "spool/autograd/ops.h"
#include "spool/models/formats/parameter_file.h"
#include "spool/planner/sharding/shard_choice.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/autograd/plan_testing.h"
#include "tests/models/steps/sharding_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t budget = size_t{32} << 20;
constexpr TransformerSizes sizes{
    .layers = 2, .channels = 32, .heads = 4, .batch = 4, .tokens = 16, .dropout = 0.1F};

const ComparedModel& transformer() {
  static const ComparedModel compared(
      [](Stream& s) { return std::make_unique<Transformer>(sizes, s); },
      sizes.batch * sizes.tokens);
  return compared;
}

// Attention by hand: heads by reshape and permute, products and softmax.
class ByHand final : public StepModel {
 public:
  explicit ByHand(Stream& stream) : parameters_(stream, DType::f32) {
    const auto add = [&](const char* name, const Shape& shape) {
      return &parameters_.add(name, shape);
    };
    embedding_ = add("embedding.weight", {V, C});
    query_ = add("query.weight", {C, C});
    key_ = add("key.weight", {C, C});
    value_ = add("value.weight", {C, C});
    projection_ = add("projection.weight", {C, C});
    const Spec ids{Shape{B, T}, DType::i32};
    tokens_ = Tensor(ids, stream, {.name = "tokens", .purpose = Purpose::input});
    targets_ = Tensor(ids, stream, {.name = "targets", .purpose = Purpose::input});
  }
  static constexpr int64_t targets = 4 * 8;

  Parameters& parameters() override { return parameters_; }
  Var loss(Tape& tape) override {
    const Var x = embedding(tape.input(tokens_), *embedding_);
    const auto heads = [&](Parameter& weight) {
      return permute(reshape(linear(x, weight), {B, T, H, C / H}), {0, 2, 1, 3});
    };
    const Var q = heads(*query_), k = heads(*key_), v = heads(*value_);
    const Var scores = softmax(scale(matmul(q, k, {.b = true}), 0.35));
    const Var joined = reshape(permute(matmul(scores, v), {0, 2, 1, 3}), {B, T, C});
    return linear_cross_entropy(add(x, linear(joined, *projection_)), *embedding_,
                                tape.input(targets_));
  }
  void upload_placeholder() override {
    Random random(/*seed=*/3);
    for (const Tensor* ids : {&tokens_, &targets_}) {
      std::vector<int32_t> drawn(B * T);
      for (int32_t& id : drawn) id = static_cast<int32_t>(random.next() % V);
      write<int32_t>(*ids, drawn);
    }
  }
  void initialise(uint64_t seed) override {
    for (const Parameter* p : parameters_) {
      Random random(++seed);
      std::vector<float> numbers(static_cast<size_t>(p->whole().shape.numel()));
      for (float& x : numbers) x = 0.3F * random.normal();
      write_whole(*p, std::as_bytes(std::span(numbers)));
    }
  }

 private:
  static constexpr int64_t B = 4, T = 8, C = 32, H = 4, V = 64;
  Parameters parameters_;
  Parameter *embedding_, *query_, *key_, *value_, *projection_;
  Tensor tokens_, targets_;
};

class RandomSharding : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Mesh, RandomSharding,
                         ::testing::Values("1", "2", "4", "2x2", "8", "2x2x2"),
                         [](const auto& mesh) { return "on_" + std::string(mesh.param); });

TEST_P(RandomSharding, HasTheLossAndTheGradientsOfOneRank) {
  const MeshAxes mesh = parse_mesh(GetParam());
  const uint64_t cases = nightly() ? 40 : finds_races() ? 1 : 4;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed, " on ", mesh.text()));
    transformer().expect_as_one_rank(mesh, [&](const RecordedLoss& recorded) {
      return random_assignment(recorded, mesh, seed);
    });
    if (::testing::Test::HasFailure()) return;
  }
}

TEST_P(RandomSharding, HasThemOfAttentionByHandHoweverParametersAreStored) {
  static const ComparedModel by_hand([](Stream& s) { return std::make_unique<ByHand>(s); },
                                     ByHand::targets);
  by_hand.expect_as_one_rank_at_random(parse_mesh(GetParam()), nightly()       ? 100
                                                               : finds_races() ? 1
                                                                               : 2);
}

// Any placement of values, recomputed regions, and regions in chunks, with moves inside.
TEST_P(RandomSharding, HasThemUnderRandomPlans) {
  const MeshAxes mesh = parse_mesh(GetParam());
  if (mesh.ranks() == 1 || mesh.ranks() > 4) GTEST_SKIP() << "on meshes of 2 and 4 ranks";
  const uint64_t cases = nightly() ? 100 : finds_races() ? 2 : 20;
  int moves_in_chunks = 0;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed, " on ", mesh.text()));
    const auto choose = [&](const RecordedLoss& recorded) {
      return random_assignment(recorded, mesh, seed);
    };
    const Program program = transformer().program_of_rank(mesh, choose);
    Random random(/*seed=*/5, seed);
    const Plan plan = random_plan(program, random);
    for (const Region& r : plan.regions) {
      for (NodeId n = r.first; r.chunks > 1 && n <= r.last; ++n) {
        if (std::string_view(program.nodes[n].op->attributes()).starts_with("along")) {
          ++moves_in_chunks;
        }
      }
    }
    transformer().expect_as_one_rank(mesh, choose, plan);
    if (::testing::Test::HasFailure()) return;
  }
  if (!finds_races()) {
    EXPECT_GT(moves_in_chunks, 0) << "no plan has a move in a region in chunks";
  }
}

TEST(ShardedModel, HasTheLossOfOneRankByEachPolicy) {
  for (const char* text : {"2", "2x2", "1x4"}) {
    const MeshAxes mesh = parse_mesh(text);
    const MeshMachine machine = mesh_machine("h200", mesh);
    for (const ShardPolicy policy : enumerators<ShardPolicy>()) {
      SCOPED_TRACE(sentence(name(policy), " on ", text));
      transformer().expect_as_one_rank(mesh, [&](const RecordedLoss& recorded) {
        return choose_shards(recorded.program, mesh, machine, policy).how;
      });
    }
  }
}

Assignment of_seed_0(const RecordedLoss& recorded) {
  return random_assignment(recorded, parse_mesh("1"), 0);
}

TEST(ShardedModel, OnOneRankIsTheModelItself) {
  CpuStream stream(budget, 1);
  stream.join(ranks_of_threads(1).front());
  const Differentiated found = transformer().by_rank(parse_mesh("1"), of_seed_0, stream);
  const Differentiated& alone = transformer().alone();
  EXPECT_EQ(found.loss, alone.loss);
  for (const auto& [name, numbers] : found.gradients) {
    EXPECT_TRUE(numbers == alone.gradients.at(name)) << name;
  }
  EXPECT_NEAR(static_cast<double>(found.peak) / static_cast<double>(alone.peak), 1, 0.01);
}

TEST(ShardedModel, RefusesAStreamWithoutItsRanks) {
  CpuStream stream(budget, 1);
  const MeshAxes mesh = parse_mesh("2x2");
  expect_error(ErrorKind::invalid, {"a mesh of 4 ranks, 2x2, needs a stream that has joined"},
               [&] { transformer().by_rank(mesh, of_seed_0, stream); });
}

class ReadsItsLoss final : public StepModel {
 public:
  explicit ReadsItsLoss(Stream& stream) : model_(sizes, stream) {}
  Parameters& parameters() override { return model_.parameters(); }
  Var loss(Tape& tape) override {
    Var loss = model_.loss(tape);
    (void)loss.tensor();
    return loss;
  }

 private:
  Transformer model_;
};

TEST(ShardedModel, RefusesALossThatReadsWhatItComputes) {
  CpuStream stream(budget, 1);
  ReadsItsLoss model(stream);
  expect_error(ErrorKind::invalid,
               {"its tensor was asked for: this tape records ops and does not run them"},
               [&] { record_loss(model, stream); });
}

// What is another one in every step.
enum class Different { factor, input, parameter, result, inputs };

class Differs final : public StepModel {
 public:
  Differs(Different what, Stream& stream) : what_(what), parameters_(stream, DType::f32) {
    weight_ = &parameters_.add("weight", {4, 4});
    other_ = &parameters_.add("other", {4, 4});
    x_ = make();
  }
  Parameters& parameters() override { return parameters_; }
  Var loss(Tape& tape) override {
    ++step_;
    const auto differs = [&](Different what) { return what == what_ && step_ > 1; };
    if (differs(Different::input)) x_ = make();
    Parameter& first = differs(Different::parameter) ? *other_ : *weight_;
    Parameter& second = differs(Different::parameter) ? *weight_ : *other_;
    const Var y = linear(linear(tape.input(x_), first), second);
    const Var whole = mean(scale(y, differs(Different::factor) ? 3 : 2)), half = scale(whole, 0.5);
    if (differs(Different::inputs)) tape.input(make());
    return differs(Different::result) ? whole : half;
  }
  void initialise(uint64_t) override {}

 private:
  Tensor make() { return {{Shape{2, 4}, DType::f32}, parameters_.stream()}; }

  Different what_;
  Parameters parameters_;
  Parameter *weight_ = nullptr, *other_ = nullptr;
  Tensor x_;
  int step_ = 0;
};

TEST(ShardedModel, RefusesALossThatDiffersFromStepToStep) {
  const std::map<Different, const char*> refusals{
      {Different::factor,
       "the loss differs from what was recorded at first, from its node 2 (scale) on"},
      {Different::input, "input 0 of the loss, f32 (2, 4), is another tensor"},
      {Different::parameter, "the loss reads the parameter other where it read another one"},
      {Different::result, "the loss differs from what was recorded at first"},
      {Different::inputs, "the loss has 2 inputs, and had 1"}};
  for (const auto& [what, refusal] : refusals) {
    CpuStream stream(budget, 1);
    stream.join(ranks_of_threads(1).front());
    const MeshAxes mesh = parse_mesh("1");
    ShardedModel model([one = what](Stream& s) { return std::make_unique<Differs>(one, s); },
                       of_seed_0, mesh, stream);
    model.initialise(1);
    const auto apply = [&] {
      Tape tape(stream);
      model.loss(tape);
    };
    apply();
    expect_error(ErrorKind::invalid, {refusal, "record it once"}, apply);
  }
}

}  // namespace
}  // namespace spool::testing
