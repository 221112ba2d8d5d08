// runs: threads
// A transformer of which each rank has a part has the loss and the gradients of one rank, however
// its ops are cut.

#include "spool/autograd/sharding/sharded_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "spool/kernels/elementwise.h"
#include "spool/models/steps/exchange/neighbour_sums.h"
#include "spool/planner/sharding/shard_choice.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/autograd/plan_testing.h"
#include "tests/autograd/sharding/parts_testing.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/models/steps/sharding_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t budget = size_t{32} << 20;
constexpr TransformerSizes sizes{
    .layers = 2, .channels = 32, .heads = 4, .batch = 4, .tokens = 16, .dropout = 0.1F};

TapeOptions step_options(Stream& stream) {
  TapeOptions options{.backward_follows = true};
  options.loss_scale = Tensor({Shape{1}, DType::f32}, stream);
  launch(Fill{.out = options.loss_scale, .value = 1.0F / (sizes.batch * sizes.tokens)}, stream);
  options.random = integers({4}, {1, 2, 3, 4}, stream);
  return options;
}

struct Differentiated {
  Numbers loss = {};
  std::map<std::string, Numbers> gradients = {};
  size_t peak = 0;
};

const Differentiated& by_one_rank() {
  static const Differentiated alone = [] {
    CpuStream stream(budget, 1);
    Transformer model(sizes, stream);
    model.initialise();
    model.upload(0);
    Differentiated found;
    {
      Tape tape(stream, step_options(stream));
      const Var loss = model.loss(tape);
      found.loss = values(loss.tensor());
      tape.backward(loss);
    }
    for (const Parameter* p : model.parameters()) {
      found.gradients[std::string(std::string_view(p->name))] = values(p->grad);
    }
    stream.synchronize();
    found.peak = stream.memory().peak;
    return found;
  }();
  return alone;
}

struct RankOfModel {
  Differentiated found = {};
  std::vector<ShardParameter> parameters = {};
};

std::unique_ptr<ShardedModel> part_of_model(const MeshAxes& mesh,
                                            const ShardedModel::Choose& choose, Stream& stream) {
  const std::vector<Link> links(mesh.size());
  return std::make_unique<ShardedModel>(
      [](Stream& s) { return std::make_unique<Transformer>(sizes, s); }, choose, mesh,
      link_price(mesh, links), stream);
}

Machine machine_of(const MeshAxes& mesh, int rank) {
  return {.architecture = this_processor(1), .mesh = {.ranks = mesh.ranks(), .rank = rank}};
}

// What a rank's tape records, the same on all of them but for their places.
Program program_of_rank(const MeshAxes& mesh, const ShardedModel::Choose& choose) {
  MetaStream meta(machine_of(mesh, 0));
  const auto model = part_of_model(mesh, choose, meta);
  Tape tape(meta, step_options(meta));
  model->loss(tape);
  return tape.take_program();
}

RankOfModel differentiate_part(const MeshAxes& mesh, const ShardedModel::Choose& choose,
                               Stream& stream, const Plan& plan = {}) {
  RankOfModel rank;
  {
    HostLink link(stream, budget);
    Offloader offloader(link);
    const auto part = part_of_model(mesh, choose, stream);
    ShardedModel& model = *part;
    model.initialise(100);
    dynamic_cast<Transformer&>(model.whole()).upload(0);
    NeighbourSums sums(*model.shards(), stream, /*next=*/nullptr, /*bucket_elements=*/4096);
    TapeOptions options = step_options(stream);
    options.sink = &sums;
    options.plan = plan;
    options.offloader = &offloader;
    Tape tape(stream, std::move(options));
    const Var loss = model.loss(tape);
    tape.backward(loss);
    rank.parameters = model.program().parameters;
    if (stream.device().type != DeviceType::meta) {
      rank.found.loss = values(loss.tensor());
      for (const Parameter* p : model.parameters()) {
        rank.found.gradients[std::string(std::string_view(p->name))] = values(p->grad);
      }
    }
  }
  stream.synchronize();
  rank.found.peak = stream.memory().peak;
  return rank;
}

void expect_near(const Numbers& found, const Numbers& wanted, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  double largest = 1e-30, apart = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    apart = std::max(apart, std::abs(found[i] - wanted[i]));
  }
  EXPECT_LE(apart, 2e-5 * largest) << what;
}

// Expects that ranks that have the same of a value have the same bits.
void expect_equal_copies(const std::vector<Numbers>& parts, const Sharding& s, const MeshAxes& mesh,
                         const std::string& what) {
  const auto ranks = all_ranks(mesh);
  for (size_t r = 0; r < ranks.size(); ++r) {
    Coordinates first = ranks[r];
    for (size_t a = 0; a < mesh.size(); ++a) {
      if (!s[a].is_cut()) first[a] = 0;
    }
    const auto at = static_cast<size_t>(std::ranges::find(ranks, first) - ranks.begin());
    EXPECT_TRUE(parts[r] == parts[at]) << what << " of ranks " << r << " and " << at;
  }
}

void expect_as_one_rank(const std::vector<RankOfModel>& ranks, const MeshAxes& mesh) {
  for (const RankOfModel& r : ranks) {
    EXPECT_EQ(r.found.loss, ranks[0].found.loss);
    expect_near(r.found.loss, by_one_rank().loss, "loss");
  }
  for (const ShardParameter& p : ranks[0].parameters) {
    const std::string name(std::string_view(p.name));
    Sharding summed = p.stored;
    for (State& s : summed.along) {
      if (s == State::shared()) s = State::whole();
    }
    std::vector<Numbers> parts;
    for (const RankOfModel& r : ranks) parts.push_back(r.found.gradients.at(name));
    expect_equal_copies(parts, summed, mesh, name);
    expect_near(whole_of(parts, p.value, summed, mesh), by_one_rank().gradients.at(name), name);
  }
}

// Runs the model on ranks that are threads, and on the meta device, which foretells their peaks.
void expect_as_one_rank(const MeshAxes& mesh, const ShardedModel::Choose& choose,
                        const Plan& plan = {}) {
  std::vector<RankOfModel> ranks(static_cast<size_t>(mesh.ranks()));
  run_ranks(mesh.ranks(), [&](const std::shared_ptr<Communicator>& own) {
    CpuStream stream(budget, 1);
    stream.join(own);
    ranks[static_cast<size_t>(own->rank())] = differentiate_part(mesh, choose, stream, plan);
  });
  expect_as_one_rank(ranks, mesh);
  for (int r = 0; r < mesh.ranks(); ++r) {
    MetaStream meta(machine_of(mesh, r));
    EXPECT_EQ(differentiate_part(mesh, choose, meta, plan).found.peak,
              ranks[static_cast<size_t>(r)].found.peak)
        << "rank " << r;
  }
}

class RandomSharding : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Mesh, RandomSharding,
                         ::testing::Values("1", "2", "4", "2x2", "8", "2x2x2"),
                         [](const auto& mesh) { return "on_" + std::string(mesh.param); });

TEST_P(RandomSharding, HasTheLossAndTheGradientsOfOneRank) {
  const MeshAxes mesh = parse_mesh(GetParam());
  const uint64_t cases = nightly() ? 40 : finds_races() ? 1 : 4;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed, " on ", mesh.text()));
    expect_as_one_rank(mesh, [&](const RecordedLoss& recorded) {
      return random_assignment(recorded, mesh, seed);
    });
    if (::testing::Test::HasFailure()) return;
  }
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
    const Program program = program_of_rank(mesh, choose);
    Random random(/*seed=*/5, seed);
    const Plan plan = random_plan(program, random);
    for (const Region& r : plan.regions) {
      for (NodeId n = r.first; r.chunks > 1 && n <= r.last; ++n) {
        if (std::string_view(program.nodes[n].op->attributes()).starts_with("along")) {
          ++moves_in_chunks;
        }
      }
    }
    expect_as_one_rank(mesh, choose, plan);
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
      expect_as_one_rank(mesh, [&](const RecordedLoss& recorded) {
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
  const Differentiated found = differentiate_part(parse_mesh("1"), of_seed_0, stream).found;
  const Differentiated& alone = by_one_rank();
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
               [&] { differentiate_part(mesh, of_seed_0, stream); });
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

}  // namespace
}  // namespace spool::testing
