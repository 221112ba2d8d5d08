// runs: numbers
// The bound at one instant: against every choice of what is kept, and against published optima.

#include <gtest/gtest.h>

#include <map>

#include "spool/planner/search/bound/instant_bound.h"
#include "tests/planner/search/synthetic.h"

namespace spool::testing {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

double granules_of(const Program& program, ValueId v) {
  return static_cast<double>(ceil_div(program.values[v].spec.nbytes(), Arena::granule));
}

// Everything that can be kept at an instant, and what it costs to recompute it.
class EveryChoice {
 public:
  EveryChoice(const Program& program, NodeId node, const IdTable<NodeId, double>& seconds)
      : program_(program), node_(node), seconds_(seconds), is_free_(program.values.size()) {
    for (const ValueId v : program.nodes[node].saves) is_free_[v] = true;
    for (const ValueId v : program.nodes[node].inputs) is_free_[v] = true;
    for (ValueId v = 0; v < program.values.next_id(); ++v) {
      const NodeId producer = program.values[v].producer;
      if (producer < 0) is_free_[v] = true;
      if (producer >= 0 && producer < node && !is_free_[v]) values_.push_back(v);
    }
    for (NodeId n = 0; n < node; ++n) {
      for (const ValueId v : program.nodes[n].saves) {
        if (!is_free_[v]) needed_.push_back(v);
      }
    }
    std::ranges::sort(needed_);
    needed_.erase(std::unique(needed_.begin(), needed_.end()), needed_.end());
  }

  const std::vector<ValueId>& values() const { return values_; }
  double needed_granules() const {
    double sum = 0;
    for (const ValueId v : needed_) sum += granules_of(program_, v);
    return sum;
  }

  // The minimum seconds by kept granules.
  std::map<double, double> seconds_by_granules() const {
    std::map<double, double> min;
    for (size_t kept = 0; kept < size_t{1} << values_.size(); ++kept) {
      double granules = 0;
      for (size_t i = 0; i < values_.size(); ++i) {
        if (kept >> i & 1) granules += granules_of(program_, values_[i]);
      }
      const auto [at, is_new] = min.try_emplace(granules, infinite);
      at->second = std::min(at->second, recomputed(kept));
    }
    return min;
  }

 private:
  double recomputed(size_t kept) const {
    IdTable<ValueId, bool> is_live = is_free_;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (kept >> i & 1) is_live[values_[i]] = true;
    }
    IdTable<NodeId, bool> runs(program_.nodes.size());
    std::vector<ValueId> waiting = needed_;
    double sum = 0;
    while (!waiting.empty()) {
      const ValueId v = waiting.back();
      waiting.pop_back();
      const NodeId producer = program_.values[v].producer;
      if (is_live[v] || runs[producer]) continue;
      if (!program_.nodes[producer].op->recomputable()) return infinite;
      runs[producer] = true;
      sum += seconds_[producer];
      for (const ValueId from : program_.nodes[producer].inputs) waiting.push_back(from);
    }
    return sum;
  }

  const Program& program_;
  NodeId node_;
  const IdTable<NodeId, double>& seconds_;
  IdTable<ValueId, bool> is_free_;
  std::vector<ValueId> values_, needed_;
};

// The lower convex hull of the points, at x; infinite left of all.
double hull_at(const std::map<double, double>& points, double x) {
  double min = infinite;
  for (const auto& [a, at_a] : points) {
    if (a > x || std::isinf(at_a)) continue;
    min = std::min(min, at_a);
    for (const auto& [b, at_b] : points) {
      if (b <= x || std::isinf(at_b)) continue;
      min = std::min(min, at_a + (at_b - at_a) * (x - a) / (b - a));
    }
  }
  return min;
}

double optimum_at(const std::map<double, double>& points, double x) {
  double min = infinite;
  for (const auto& [granules, seconds] : points) {
    if (granules <= x) min = std::min(min, seconds);
  }
  return min;
}

IdTable<NodeId, double> seconds_of(const SyntheticModel& model) {
  IdTable<NodeId, double> seconds;
  for (const SyntheticOp& op : model.ops) seconds.push_back(op.forward);
  seconds.push_back(0);  // the loss
  return seconds;
}

TEST(InstantBound, IsTheConvexHullOfAllChoices) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const auto ops = static_cast<int>(draw(random, 1, 11));
    const SyntheticModel model = random_graph(random, ops);
    const Program program = program_of(model);
    const IdTable<NodeId, double> seconds = seconds_of(model);
    const auto node = static_cast<NodeId>(draw(random, 0, ops));
    const EveryChoice every(program, node, seconds);
    if (every.values().size() > 13) continue;
    SCOPED_TRACE(sentence("seed ", seed, ", node ", node));
    const std::map<double, double> points = every.seconds_by_granules();
    const double fixed = 7, all = every.needed_granules();
    InstantBound bound = InstantBound::in_forward(
        program, node, seconds, static_cast<size_t>(fixed + all) * Arena::granule);
    for (double granules = -1; granules <= all + 1; granules += 0.5) {
      const auto bytes = static_cast<size_t>((fixed + granules) * Arena::granule);
      const double hull = hull_at(points, granules), found = bound.seconds_within(bytes);
      EXPECT_LE(found, optimum_at(points, granules) * (1 + 1e-9)) << granules;
      if (std::isinf(hull) || std::isinf(found)) {
        EXPECT_EQ(found, hull) << granules;
      } else {
        EXPECT_NEAR(found, hull, 1e-6) << granules << " of " << all;
      }
    }
  }
}

TEST(InstantBound, DoesNotDependOnTheOrderOfQuestions) {
  Random random(5);
  const SyntheticModel model = random_graph(random, 40);
  const Program program = program_of(model);
  const IdTable<NodeId, double> seconds = seconds_of(model);
  InstantBound rising = InstantBound::in_forward(program, 40, seconds, 1000 * Arena::granule);
  InstantBound falling = InstantBound::in_forward(program, 40, seconds, 1000 * Arena::granule);
  std::vector<double> up, down;
  for (size_t granules = 500; granules <= 1000; ++granules) {
    up.push_back(rising.seconds_within(granules * Arena::granule));
    down.push_back(falling.seconds_within((1500 - granules) * Arena::granule));
  }
  for (size_t i = 0; i < up.size(); ++i) {
    const double other = down[down.size() - 1 - i];
    EXPECT_TRUE(up[i] == other || std::abs(up[i] - other) < 1e-6) << up[i] << " and " << other;
  }
  for (size_t i = 1; i < up.size(); ++i) EXPECT_LE(up[i], up[i - 1] + 1e-9);
}

TEST(InstantBound, AFasterLinkNeverRaisesIt) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Random random(seed);
    const SyntheticModel model = random_graph(random, 20);
    const Program program = program_of(model);
    InstantBound bound =
        InstantBound::in_forward(program, 20, seconds_of(model), 300 * Arena::granule);
    for (double granules = 100; granules < 310; granules += 7) {
      const double bytes = granules * Arena::granule;
      double before = bound.seconds_within(bytes);
      for (double rate = 1e-3; rate < 1e6; rate *= 4) {
        const double found = bound.seconds_within(
            bytes, {.bytes_per_second = rate, .seconds_before = 10, .seconds_after = 20});
        EXPECT_LE(found, before * (1 + 1e-6) + 1e-6) << granules << " granules, rate " << rate;
        before = found;
      }
    }
  }
}

// A chain whose ops save their inputs.
SyntheticModel chain(int ops) {
  SyntheticModel model;
  for (int i = 0; i < ops; ++i) model.ops.push_back({.inputs = {i - 1}});
  return model;
}

int64_t binomial(int64_t n, int64_t k) {
  int64_t result = 1;
  for (int64_t i = 0; i < k; ++i) result = result * (n - i) / (i + 1);
  return result;
}
// The fewest steps forward that reverse a chain of l with c checkpoints, by Griewank.
int64_t reversal(int64_t l, int64_t c) {
  int64_t r = 1;
  while (binomial(c + r, c) < l) ++r;
  return r * l - binomial(c + r, c + 1);
}

// Nodes 0 to 2n, where i is read by i + 1 and by 2n - i, in M slots of memory.  Here node i < n is
// op i, which reads nothing that is priced if i is 0; node n is the loss; and 2n - i is the
// backward of op i + 1.
TEST(InstantBound, IsAtMostTheOptimumOfUnitChains) {
  EXPECT_EQ(reversal(3, 1) - 2, 1);  // n = 2, M = 3
  EXPECT_EQ(reversal(7, 4) - 6, 2);  // n = 6, M = 6
  for (int n = 2; n <= 24; ++n) {
    const Program program = program_of(chain(n + 1));
    const IdTable<NodeId, double> seconds(program.nodes.size(), 1);
    for (int slots = 3; slots <= n + 3; ++slots) {
      const double optimum = static_cast<double>(reversal(n + 1, slots - 2) - n);
      double max = 0;
      for (int k = 1; k <= n; ++k) {
        InstantBound bound = InstantBound::in_forward(program, k, seconds,
                                                      static_cast<size_t>(k + 2) * Arena::granule);
        const double found = bound.seconds_within(static_cast<size_t>(slots) * Arena::granule);
        EXPECT_LE(found, optimum) << n << " ops, " << slots << " slots, instant " << k;
        max = std::max(max, found);
      }
      EXPECT_EQ(max > 0, optimum > 0) << n << " ops, " << slots << " slots";
    }
  }
}

// A chain of 4 ops: each passes on a value of 1 slot and saves 2, one of them its output; forward
// takes 1, backward 2.  The optimum is known for each number of slots.
TEST(InstantBound, IsAtMostTheOptimumOfRotorsChain) {
  SyntheticModel model;
  for (int i = 0; i < 4; ++i) {
    model.ops.push_back({.inputs = {i - 1}, .statistics = 1, .saves_output = true});
  }
  const Program program = program_of(model);
  const IdTable<NodeId, double> seconds(program.nodes.size(), 1);
  const std::map<size_t, double> optima{{5, 18}, {6, 15}, {7, 14}, {8, 14}, {9, 13}, {10, 12}};
  for (const auto& [slots, optimum] : optima) {
    double max = 0;
    for (int l = 1; l <= 4; ++l) {
      // The input, what the ops up to this one save, and the gradient.
      const auto live = static_cast<size_t>(2 * l + 2) * Arena::granule;
      InstantBound bound = InstantBound::in_forward(program, l - 1, seconds, live);
      max = std::max(max, bound.seconds_within(slots * Arena::granule));
    }
    EXPECT_LE(12 + max, optimum) << slots << " slots";
    EXPECT_EQ(max > 0, optimum > 12) << slots << " slots";
  }
}

}  // namespace
}  // namespace spool::testing
