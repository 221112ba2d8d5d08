// runs: numbers
// The minimum cut, against every set of vertices on the source's side.

#include "spool/planner/search/bound/min_cut.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/planner/search/synthetic.h"

namespace spool::testing {
namespace {

constexpr int source = 0, sink = 1;

struct Network {
  struct Edge {
    int from = 0, to = 0;
    int64_t capacity = 0;
  };
  int vertices = 2;
  std::vector<Edge> edges = {};

  MinCut cut() const {
    MinCut made(vertices);
    for (const Edge& e : edges) made.add_edge(e.from, e.to, e.capacity);
    return made;
  }
  int64_t capacity(size_t side) const {
    int64_t sum = 0;
    for (const Edge& e : edges) {
      if ((side >> e.from & 1) && !(side >> e.to & 1)) sum += e.capacity;
    }
    return sum;
  }
  // The minimum capacity, and the size of the smallest such set: the intersection of all of them.
  std::pair<int64_t, size_t> smallest() const {
    int64_t min = MinCut::unlimited;
    size_t common = 0;
    for (size_t side = 0; side < size_t{1} << vertices; ++side) {
      if (!(side >> source & 1) || (side >> sink & 1)) continue;
      const int64_t found = capacity(side);
      if (found < min) common = side;
      if (found <= min) common &= side;
      min = std::min(min, found);
    }
    return {min, common};
  }
};

Network random_network(Random& random) {
  Network network{.vertices = static_cast<int>(draw(random, 2, 10))};
  const int64_t edges = draw(random, 0, 30), max = draw_bool(random) ? 3 : 1'000'000;
  for (int64_t e = 0; e < edges; ++e) {
    const auto from = static_cast<int>(draw(random, 0, network.vertices - 1));
    const auto to = static_cast<int>(draw(random, 0, network.vertices - 1));
    network.edges.push_back({.from = from, .to = to, .capacity = draw(random, 0, max)});
  }
  return network;
}

void expect_smallest(const Network& network, MinCut& cut) {
  const auto [min, side] = network.smallest();
  EXPECT_EQ(cut.solve(source, sink), min);
  for (int v = 0; v < network.vertices; ++v) {
    EXPECT_EQ(cut.is_source_side(v), (side >> v & 1) != 0) << "vertex " << v;
  }
}

TEST(MinCut, IsTheSmallestOfAllCuts) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Network network = random_network(random);
    MinCut cut = network.cut();
    expect_smallest(network, cut);
  }
}

TEST(MinCut, IsSolvedAgainWithOtherCapacities) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Network network = random_network(random);
    MinCut cut = network.cut();
    for (int again = 0; again < 4; ++again) {
      for (size_t e = 0; e < network.edges.size(); ++e) {
        network.edges[e].capacity = draw(random, 0, 5);
        cut.set_capacity(static_cast<int>(e), network.edges[e].capacity);
      }
      expect_smallest(network, cut);
    }
  }
}

TEST(MinCut, OfALongPathIsItsNarrowestEdge) {
  constexpr int length = 20000;
  MinCut cut(length + 1);
  const auto vertex = [](int i) { return i == 0 ? source : i == length ? sink : i + 1; };
  for (int i = 0; i < length; ++i) {
    cut.add_edge(vertex(i), vertex(i + 1), i == length / 2 ? 7 : MinCut::unlimited);
  }
  EXPECT_EQ(cut.solve(source, sink), 7);
  EXPECT_TRUE(cut.is_source_side(vertex(length / 2)));
  EXPECT_FALSE(cut.is_source_side(vertex(length / 2 + 1)));
}

TEST(MinCut, OfVerticesWithoutEdgesIsNothing) {
  MinCut cut(3);
  EXPECT_EQ(cut.solve(source, sink), 0);
  EXPECT_TRUE(cut.is_source_side(source));
  EXPECT_FALSE(cut.is_source_side(sink));
  EXPECT_FALSE(cut.is_source_side(2));
}

}  // namespace
}  // namespace spool::testing
