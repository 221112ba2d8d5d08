#include "tests/models/steps/sharding_testing.h"

#include <algorithm>
#include <cmath>

#include "spool/kernels/elementwise.h"
#include "spool/models/steps/exchange/neighbour_sums.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/random.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/autograd/sharding/parts_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t budget = size_t{32} << 20;

Machine machine_of(const MeshAxes& mesh, int rank) {
  return {.architecture = this_processor(1), .mesh = {.ranks = mesh.ranks(), .rank = rank}};
}

std::map<std::string, Numbers> gradients_of(const Parameters& parameters) {
  std::map<std::string, Numbers> all;
  for (const Parameter* p : parameters)
    all[std::string(std::string_view(p->name))] = values(p->grad);
  return all;
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

}  // namespace

Assignment random_assignment(const RecordedLoss& recorded, const MeshAxes& mesh, uint64_t seed) {
  Random random(seed);
  Assignment how;
  const auto values = whole_values(recorded.program);
  for (NodeId n = 0; n < recorded.program.nodes.next_id(); ++n) {
    std::vector<Strategy> all;
    for (auto& s : all_strategies(whole_op(recorded.program, n, values), mesh)) {
      if (s.strategy) all.push_back(std::move(*s.strategy));
    }
    how.nodes.push_back(all[random.next() % all.size()]);
  }
  return how;
}

Assignment randomly_stored(const RecordedLoss& recorded, const MeshAxes& mesh, uint64_t seed) {
  Assignment how = random_assignment(recorded, mesh, seed);
  Random random(/*seed=*/6, seed);
  const auto values = whole_values(recorded.program);
  for (ValueId v = 0; v < recorded.program.values.next_id(); ++v) {
    if (!recorded.program.values[v].parameter) continue;
    std::vector<Sharding> all = all_shardings(values[static_cast<size_t>(v)], mesh);
    std::erase_if(all, [&](const Sharding& s) {
      return std::ranges::any_of(
          s.along, [](State one) { return one == State::partial() || one == State::shared(); });
    });
    how.given[v] = all[random.next() % all.size()];
  }
  return how;
}

ComparedModel::ComparedModel(ShardedModel::Make make, int64_t targets)
    : make_(std::move(make)), targets_(targets) {
  CpuStream stream(budget, 1);
  const std::unique_ptr<StepModel> model = make_(stream);
  model->initialise(100);
  model->upload_placeholder();
  {
    Tape tape(stream, options(stream));
    const Var loss = model->loss(tape);
    alone_.loss = values(loss.tensor());
    tape.backward(loss);
  }
  alone_.gradients = gradients_of(model->parameters());
  stream.synchronize();
  alone_.peak = stream.memory().peak;
}

std::unique_ptr<ShardedModel> ComparedModel::part(const MeshAxes& mesh,
                                                  const ShardedModel::Choose& choose,
                                                  Stream& stream) const {
  return std::make_unique<ShardedModel>(make_, choose, mesh, stream);
}

TapeOptions ComparedModel::options(Stream& stream) const {
  TapeOptions options{.backward_follows = true};
  options.loss_scale = Tensor({Shape{1}, DType::f32}, stream);
  launch(Fill{.out = options.loss_scale, .value = 1.0F / static_cast<float>(targets_)}, stream);
  options.random = integers({4}, {1, 2, 3, 4}, stream);
  return options;
}

Program ComparedModel::program_of_rank(const MeshAxes& mesh,
                                       const ShardedModel::Choose& choose) const {
  MetaStream meta(machine_of(mesh, 0));
  const auto model = part(mesh, choose, meta);
  Tape tape(meta, options(meta));
  model->loss(tape);
  return tape.take_program();
}

Differentiated ComparedModel::by_rank(const MeshAxes& mesh, const ShardedModel::Choose& choose,
                                      Stream& stream, const Plan& plan) const {
  return differentiate(mesh, choose, stream, plan).found;
}

ComparedModel::Rank ComparedModel::differentiate(const MeshAxes& mesh,
                                                 const ShardedModel::Choose& choose, Stream& stream,
                                                 const Plan& plan) const {
  Rank rank;
  {
    HostLink link(stream, budget);
    Offloader offloader(link);
    const auto model = part(mesh, choose, stream);
    const bool runs = stream.device().type != DeviceType::meta;
    model->initialise(100);
    if (runs) model->whole().upload_placeholder();
    NeighbourSums sums(*model->shards(), stream, /*next=*/nullptr, /*bucket_elements=*/4096);
    TapeOptions of_rank = options(stream);
    of_rank.sink = &sums;
    of_rank.plan = plan;
    of_rank.offloader = &offloader;
    Tape tape(stream, std::move(of_rank));
    const Var loss = model->loss(tape);
    tape.backward(loss);
    rank.parameters = model->program().parameters;
    if (runs) {
      rank.found = {.loss = values(loss.tensor()), .gradients = gradients_of(model->parameters())};
    }
  }
  stream.synchronize();
  rank.found.peak = stream.memory().peak;
  return rank;
}

void ComparedModel::expect_same(const std::vector<Rank>& ranks, const MeshAxes& mesh) const {
  for (const Rank& r : ranks) {
    EXPECT_EQ(r.found.loss, ranks[0].found.loss);
    expect_near(r.found.loss, alone_.loss, "loss");
  }
  for (const ShardParameter& p : ranks[0].parameters) {
    const std::string name(std::string_view(p.name));
    Sharding summed = p.stored;
    for (State& s : summed.along) {
      if (s == State::shared()) s = State::whole();
    }
    std::vector<Numbers> parts;
    for (const Rank& r : ranks) parts.push_back(r.found.gradients.at(name));
    expect_equal_copies(parts, summed, mesh, name);
    expect_near(whole_of(parts, p.value, summed, mesh), alone_.gradients.at(name), name);
  }
}

void ComparedModel::expect_as_one_rank(const MeshAxes& mesh, const ShardedModel::Choose& choose,
                                       const Plan& plan) const {
  std::vector<Rank> ranks(static_cast<size_t>(mesh.ranks()));
  run_ranks(mesh.ranks(), [&](const std::shared_ptr<Communicator>& own) {
    CpuStream stream(budget, 1);
    stream.join(own);
    ranks[static_cast<size_t>(own->rank())] = differentiate(mesh, choose, stream, plan);
  });
  expect_same(ranks, mesh);
  for (int r = 0; r < mesh.ranks(); ++r) {
    MetaStream meta(machine_of(mesh, r));
    EXPECT_EQ(by_rank(mesh, choose, meta, plan).peak, ranks[static_cast<size_t>(r)].found.peak)
        << "rank " << r;
  }
}

void ComparedModel::expect_as_one_rank_at_random(const MeshAxes& mesh, uint64_t cases) const {
  for (uint64_t seed = 0; seed < cases && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(sentence("seed ", seed, " on ", mesh.text()));
    expect_as_one_rank(
        mesh, [&](const RecordedLoss& recorded) { return randomly_stored(recorded, mesh, seed); });
  }
}

}  // namespace spool::testing
