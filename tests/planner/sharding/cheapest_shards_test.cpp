// runs: numbers
// The cheapest cut of a program that the dynamic programme finds is that of all there are.

#include "spool/planner/sharding/cheapest_shards.h"

#include <algorithm>

#include "spool/autograd/ops.h"
#include "spool/autograd/parameters.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/random.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int64_t channels = 256;  // so that a weight is large enough to be stored in parts

// A small net of random ops, in which a value may have several readers, and a weight, too.
class RandomNet {
 public:
  RandomNet(uint64_t seed, int ops) : random_(seed) {
    Tape tape(stream_, {.backward_follows = true});
    std::vector<Var> made{tape.input(Tensor({{8, channels}}, stream_), /*needs_grad=*/true)};
    for (int i = 0; i < ops; ++i) made.push_back(op(made));
    sum(made.back());
    program_ = tape.take_program();
  }

  const Program& program() const { return program_; }
  bool weight_has_several_readers() const {
    std::map<const Parameter*, int> readers;
    for (const Node& n : program_.nodes) {
      for (const ValueId v : n.inputs) ++readers[program_.values[v].parameter];
    }
    readers.erase(nullptr);
    return std::ranges::any_of(readers, [](const auto& r) { return r.second > 1; });
  }

 private:
  size_t below(size_t n) { return random_.next() % n; }

  Var op(const std::vector<Var>& made) {
    const Var& x = made[made.size() - 1 - below(std::min<size_t>(made.size(), 2))];
    switch (below(6)) {
      case 0:
      case 1:
        return linear(x, weight());
      case 2:
        return gelu(x, parameter({channels}));
      case 3:
        return scale(x, 2);
      case 4:
        return layer_norm(x, parameter({channels}), parameter({channels}));
      default:
        return add(x, made.back());
    }
  }
  Parameter& parameter(const Shape& shape) {
    return parameters_.add("p" + std::to_string(parameters_.all().size()), shape);
  }
  Parameter& weight() {
    if (!weight_ || below(4) == 0) weight_ = &parameter({channels, channels});
    return *weight_;
  }

  Random random_;
  MetaStream stream_{Machine{}};
  Parameters parameters_{stream_, DType::f32};
  Parameter* weight_ = nullptr;
  Program program_ = {};
};

std::vector<std::vector<size_t>> all_ways(const ShardPrices& prices) {
  std::vector<std::vector<size_t>> all;
  for (NodeId n = 0; n < prices.nodes(); ++n) {
    all.emplace_back();
    for (size_t w = 0; w < prices.ways(n).size(); ++w) {
      if (prices.ways(n)[w].strategy) all.back().push_back(w);
    }
  }
  return all;
}

struct Reader {
  NodeId node;
  ReadValue read;
};

// Every combination of ways, each with the best storage of each parameter.
class EveryWay {
 public:
  EveryWay(ShardPrices& prices, double seconds_per_byte)
      : prices_(prices), by_(seconds_per_byte), ways_(all_ways(prices)) {
    for (NodeId n = 0; n < prices.nodes(); ++n) {
      for (const ReadValue& read : prices.reads(n)) {
        if (prices.program().values[read.value].parameter) {
          readers_[read.value].push_back({n, read});
        }
      }
    }
    for (const auto& [v, readers] : readers_) {
      if (readers.size() > 1) of_several_[v] = every_storage(readers);
    }
  }

  size_t count() const {
    size_t product = 1;
    for (const auto& ways : ways_) product *= ways.size();
    return product;
  }

  int64_t cheapest() {
    int64_t best = std::numeric_limits<int64_t>::max();
    std::vector<size_t> at(ways_.size(), 0);
    while (true) {
      best = std::min(best, cost(at));
      size_t n = 0;
      while (n < at.size() && ++at[n] == ways_[n].size()) at[n++] = 0;
      if (n == at.size()) return best;
    }
  }

 private:
  size_t way(const std::vector<size_t>& at, NodeId n) const {
    return ways_[static_cast<size_t>(n)][at[static_cast<size_t>(n)]];
  }

  std::vector<Sharding> every_storage(const std::vector<Reader>& readers) const {
    std::vector<Sharding> all{Sharding{}};
    for (const Reader& r : readers) {
      for (const size_t w : ways_[static_cast<size_t>(r.node)]) {
        for (const Sharding& wanted : prices_.wanted(r.node, r.read, w)) {
          for (Sharding s : prices_.storages(r.read.value, wanted)) {
            all.push_back(s);
            for (const size_t axis : {0, 1}) {  // one that is shared may be whole
              Sharding whole = s;
              if (whole[axis] == State::shared()) whole[axis] = State::whole();
              all.push_back(whole);
            }
            std::ranges::replace(s.along, State::shared(), State::whole());
            all.push_back(s);
          }
        }
      }
    }
    return all;
  }

  int64_t cost(const std::vector<size_t>& at) {
    Assignment how;
    for (NodeId n = 0; n < prices_.nodes(); ++n) how.nodes.push_back(prices_.way(n, way(at, n)));
    for (const auto& [v, readers] : readers_) how.given[v] = best_storage(v, readers, at);
    const auto total = prices_.of(how, by_);
    return total ? total->weighed : std::numeric_limits<int64_t>::max();
  }

  Sharding best_storage(ValueId v, const std::vector<Reader>& readers,
                        const std::vector<size_t>& at) {
    const auto price = [&](const Sharding& s) {
      int64_t sum = prices_.of_storing(v, s).weighed(by_);
      for (const Reader& r : readers) {
        const auto moved =
            prices_.of_reading_stored(v, s, prices_.wanted(r.node, r.read, way(at, r.node)));
        sum += moved ? moved->weighed(by_) : std::numeric_limits<int64_t>::max() / 8;
      }
      return sum;
    };
    const Reader& only = readers.front();
    const auto all =
        readers.size() > 1
            ? of_several_.at(v)
            : prices_.storages(v, prices_.wanted(only.node, only.read, way(at, only.node)).front());
    return by_ > 0 || readers.size() > 1 ? *std::ranges::min_element(all, {}, price) : all.front();
  }

  ShardPrices& prices_;
  double by_;
  std::vector<std::vector<size_t>> ways_;
  std::map<ValueId, std::vector<Reader>> readers_ = {};
  std::map<ValueId, std::vector<Sharding>> of_several_ = {};
};

class CheapestShards : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Mesh, CheapestShards, ::testing::Values("2", "2x2", "1x4"),
                         [](const auto& mesh) { return "on_" + std::string(mesh.param); });

TEST_P(CheapestShards, AreThoseOfAllCombinations) {
  const MeshAxes mesh = parse_mesh(GetParam());
  const MeshMachine machine =
      mesh_machine("h200", mesh, Link{.seconds = 1e-6, .bytes_per_second = 20e9});
  const int ops = mesh[0] == 2 && mesh.size() == 2 ? 2 : 4;
  int tried = 0, cut = 0, in_parts = 0, of_several = 0;
  for (uint64_t seed = 0; tried < 24; ++seed) {
    const RandomNet net(seed, ops);
    ShardPrices prices(net.program(), mesh, machine);
    if (EveryWay(prices, 0).count() > 10000) continue;
    ++tried;
    of_several += net.weight_has_several_readers();
    for (const double by : {0.0, 1e-12, 1e-11, 1e-10}) {
      const Assignment how =
          cheapest_shards(prices, {.allowed = all_ways(prices), .seconds_per_byte = by});
      EXPECT_EQ(prices.of(how, by)->weighed, EveryWay(prices, by).cheapest())
          << "seed " << seed << " with " << by << " seconds a byte";
      for (const Strategy& s : how.nodes) cut += s.axes[mesh.size() - 1].index != ' ';
      for (const auto& [v, s] : how.given) in_parts += s[mesh.size() - 1] == State::cut(0);
    }
  }
  for (const int found : {cut, in_parts, of_several}) EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace spool::testing
