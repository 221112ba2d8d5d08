// A linear in parts, with numbers: what ranks compute by each strategy makes up the whole.

#include "spool/autograd/sharding/strategies.h"
#include "tests/autograd/sharding/parts_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Numbers = std::vector<double>;

Numbers random_numbers(const Shape& shape, uint64_t seed) {
  Random random(seed);
  Numbers all(static_cast<size_t>(shape.numel()));
  for (double& x : all) x = random.normal();
  return all;
}

// Of x (N, K), weight (O, K), bias (O) and dy (N, O).
struct Linear {
  Numbers x = {}, weight = {}, bias = {}, dy = {};
};
struct Computed {
  Numbers y = {}, dx = {}, dweight = {}, dbias = {};
};

Computed compute(const Linear& l) {
  const size_t O = l.bias.size(), K = l.weight.size() / O, N = l.x.size() / K;
  Computed c{Numbers(N * O), Numbers(N * K), Numbers(O * K), Numbers(O)};
  for (size_t n = 0; n < N; ++n) {
    for (size_t o = 0; o < O; ++o) {
      c.y[n * O + o] += l.bias[o];
      c.dbias[o] += l.dy[n * O + o];
      for (size_t k = 0; k < K; ++k) {
        c.y[n * O + o] += l.x[n * K + k] * l.weight[o * K + k];
        c.dx[n * K + k] += l.dy[n * O + o] * l.weight[o * K + k];
        c.dweight[o * K + k] += l.dy[n * O + o] * l.x[n * K + k];
      }
    }
  }
  return c;
}

// The results of all ranks, put together.
Computed compute_in_parts(const Linear& whole, const WholeOp& op, const Strategy& strategy,
                          const MeshAxes& mesh) {
  const Sharding of_y = strategy.outputs[0], of_dy = gradient_of(of_y, mesh);
  const auto part = [&](const Numbers& numbers, size_t i, const Coordinates& rank) {
    return part_of(numbers, op.inputs[i], strategy.inputs[i], mesh, rank);
  };
  std::array<std::vector<Numbers>, 4> of_ranks;
  for (const Coordinates& rank : all_ranks(mesh)) {
    Computed c = compute({.x = part(whole.x, 0, rank),
                          .weight = part(whole.weight, 1, rank),
                          .bias = part(whole.bias, 2, rank),
                          .dy = part_of(whole.dy, op.outputs[0], of_dy, mesh, rank)});
    of_ranks[0].push_back(c.dx);
    of_ranks[1].push_back(c.dweight);
    of_ranks[2].push_back(c.dbias);
    of_ranks[3].push_back(c.y);
  }
  const auto gradient = [&](size_t i) {
    return whole_of(of_ranks[i], op.inputs[i], gradient_of(strategy.inputs[i], mesh), mesh);
  };
  return {.y = whole_of(of_ranks[3], op.outputs[0], of_y, mesh),
          .dx = gradient(0),
          .dweight = gradient(1),
          .dbias = gradient(2)};
}

size_t expect_equal_in_all_strategies(const Linear& linear, const Shape& x, Rows rows) {
  const Shape weight{4, x.row()}, y = x.with(x.rank() - 1, 4);
  const WholeOp op =
      whole_op(parse_notation("nk,ok,+o->no"), {{x}, {weight}, {{weight[0]}}}, {{y}});
  const MeshAxes mesh = parse_mesh("2x2");
  const Computed expected = compute(linear);
  size_t count = 0;
  for (const StrategyOrReason& s : all_strategies(op, mesh, rows)) {
    if (!s.strategy) continue;
    ++count;
    const Computed found = compute_in_parts(linear, op, *s.strategy, mesh);
    const std::string words = in_words(*s.strategy, op, mesh, rows);
    EXPECT_LT(difference(found.y, expected.y), 1e-14) << words;
    EXPECT_LT(difference(found.dx, expected.dx), 1e-14) << words;
    EXPECT_LT(difference(found.dweight, expected.dweight), 1e-14) << words;
    EXPECT_LT(difference(found.dbias, expected.dbias), 1e-14) << words;
  }
  return count;
}

Linear random_linear(const Shape& x) {
  return {.x = random_numbers(x, 1),
          .weight = random_numbers({4, x.row()}, 2),
          .bias = random_numbers({4}, 3),
          .dy = random_numbers(x.with(x.rank() - 1, 4), 4)};
}

TEST(LinearInParts, IsTheWholeInAllStrategies) {
  EXPECT_EQ(expect_equal_in_all_strategies(random_linear({4, 4, 4, 8}), {4, 4, 4, 8}, Rows::each),
            36u);
  EXPECT_EQ(expect_equal_in_all_strategies(random_linear({2, 6, 8}), {2, 6, 8}, Rows::joined), 16u);
}

TEST(LinearInParts, AddsABiasOnce) {
  Linear linear = random_linear({4, 4, 4, 8});
  for (double& w : linear.weight) w = 0;
  const WholeOp op =
      whole_op(parse_notation("nk,ok,+o->no"), {{{4, 4, 4, 8}}, {{4, 8}}, {{4}}}, {{{4, 4, 4, 4}}});
  const MeshAxes mesh = parse_mesh("2x2");
  size_t count = 0;
  for (const StrategyOrReason& s : all_strategies(op, mesh, Rows::each)) {
    if (!s.strategy) continue;
    ++count;
    EXPECT_EQ(compute_in_parts(linear, op, *s.strategy, mesh).y, compute(linear).y)
        << in_words(*s.strategy, op, mesh, Rows::each);
  }
  EXPECT_EQ(count, 36u);
}

}  // namespace
}  // namespace spool::testing
