// How a program is cut into segments, and the options of each.

#include "spool/planner/search/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "spool/planner/search/options.h"
#include "tests/planner/search/synthetic.h"

namespace spool::testing {
namespace {

// Every node is in one segment, and candidates are values that only their own segment saves.
void expect_valid(const Program& program, const std::vector<Segment>& segments) {
  NodeId next = 0;
  for (const Segment& s : segments) {
    EXPECT_EQ(s.first, next);
    EXPECT_GE(s.last, s.first);
    next = s.last + 1;
    EXPECT_LE(s.candidates.size(), max_candidates);
    size_t before = SIZE_MAX;
    for (const ValueId v : s.candidates) {
      const NodeId producer = program.values[v].producer;
      EXPECT_TRUE(producer >= s.first && producer <= s.last);
      EXPECT_TRUE(program.nodes[producer].op->recomputable());
      EXPECT_LE(program.values[v].spec.nbytes(), before);
      before = program.values[v].spec.nbytes();
    }
  }
  EXPECT_EQ(next, program.nodes.next_id());
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    for (const ValueId v : program.nodes[n].saves) {
      for (const Segment& s : segments) {
        const bool outside = n < s.first || n > s.last;
        EXPECT_TRUE(!outside || std::ranges::find(s.candidates, v) == s.candidates.end());
      }
    }
  }
}

SyntheticModel chain_of(int ops, int per_layer) {
  SyntheticModel model;
  for (int i = 0; i < ops; ++i) {
    model.ops.push_back({.inputs = {i - 1}, .layer = per_layer > 0 ? i / per_layer : -1});
  }
  return model;
}

std::set<int> kinds_of(const std::vector<Segment>& segments) {
  std::set<int> kinds;
  for (const Segment& s : segments) kinds.insert(s.kind);
  return kinds;
}

TEST(Segments, AreTheOutermostScopesAndWhatIsBetween) {
  SyntheticModel model = chain_of(9, 3);
  model.ops[3].layer = -1;  // a node between two scopes
  const Program program = program_of(model);
  const std::vector<Segment> segments = segments_of(program);
  expect_valid(program, segments);
  std::vector<NodeId> lasts;
  for (const Segment& s : segments) lasts.push_back(s.last);
  EXPECT_EQ(lasts, (std::vector<NodeId>{2, 3, 5, 8, 9}));
}

TEST(Segments, OfEqualLayersAreOfOneKind) {
  Random random(1);
  const Program program = program_of(random_stack(random, {.layers = 12, .ops = 5}));
  const std::vector<Segment> segments = segments_of(program);
  expect_valid(program, segments);
  ASSERT_EQ(segments.size(), 13u);
  // The first layer reads the model's input, which is live whatever it keeps.
  EXPECT_EQ(kinds_of(segments).size(), 3u);
  EXPECT_EQ(kinds_of({segments.begin() + 1, segments.end() - 1}).size(), 1u);
}

TEST(Segments, OfOtherCostsOrShapesAreOfOtherKinds) {
  SyntheticModel model = chain_of(12, 3);
  model.ops[4].forward = 2;
  model.ops[7].output = 5;
  model.ops[10].saves_output = true;
  EXPECT_EQ(kinds_of(segments_of(program_of(model))).size(), 5u);
}

TEST(Segments, OfAnyProgramHoldEveryNodeOnce) {
  EXPECT_TRUE(segments_of({}).empty());
  for (const int ops : {1, 2, 14, 15, 16, 29, 500, 2000}) {
    for (const int per_layer : {0, 1, 7, 100, ops}) {
      SCOPED_TRACE(sentence(ops, " ops, ", per_layer, " in a scope"));
      const Program program = program_of(chain_of(ops, per_layer));
      expect_valid(program, segments_of(program));
    }
  }
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed);
    const Program program = program_of(random_graph(random, static_cast<int>(draw(random, 1, 80))));
    expect_valid(program, segments_of(program));
  }
}

// A long span without scopes also repeats, so a search has few kinds to measure.
TEST(Segments, OfALongChainWithoutScopesAreOfFewKinds) {
  const std::vector<Segment> segments = segments_of(program_of(chain_of(2000, 0)));
  EXPECT_LE(kinds_of(segments).size(), 8u);
}

bool recomputes(const SegmentOption& option, NodeId node, int output = 0) {
  return std::ranges::find(option.recomputed, SegmentOutput{.node = node, .output = output}) !=
         option.recomputed.end();
}

TEST(SegmentOptions, RecomputeWhatOnlyARecomputedOpReads) {
  SyntheticModel model = chain_of(4, 3);
  model.ops[1].saves_inputs = false;  // op 0's output is not saved
  model.ops[2].saves_inputs = true;   // op 1's is saved
  const Program program = program_of(model);
  const Segment segment = segments_of(program).front();
  ASSERT_EQ(segment.candidates, (std::vector<ValueId>{program.nodes[1].outputs[0]}));
  const std::vector<SegmentOption> options = recompute_options(program, segment);
  ASSERT_EQ(options.size(), 2u);
  EXPECT_TRUE(options[0].recomputed.empty());
  EXPECT_TRUE(recomputes(options[1], 0));
  EXPECT_TRUE(recomputes(options[1], 1));
  EXPECT_FALSE(recomputes(options[1], 2));
}

TEST(SegmentOptions, RecomputeSmallOutputsWithTheirOp) {
  SyntheticModel model = chain_of(3, 3);
  model.ops[0].output = 200;
  model.ops[0].statistics = 1;
  const Program program = program_of(model);
  const Segment segment = segments_of(program).front();
  ASSERT_FALSE(segment.candidates.empty());
  for (const SegmentOption& option : recompute_options(program, segment)) {
    EXPECT_EQ(recomputes(option, 0, 0), recomputes(option, 0, 1));
  }
}

// Keeps what the next layer saves; otherwise the next layer's backward would recompute this one.
TEST(SegmentOptions, KeepWhatOtherSegmentsSave) {
  SyntheticModel model = chain_of(6, 3);
  model.ops[2].statistics = 1;
  const Program program = program_of(model);
  const Segment segment = segments_of(program).front();
  bool any = false;
  for (const SegmentOption& option : recompute_options(program, segment)) {
    EXPECT_FALSE(recomputes(option, 2, 0));
    any = any || recomputes(option, 2, 1);
  }
  EXPECT_TRUE(any);
}

TEST(SegmentOptions, NeverRecomputeWhatCannotRunAgain) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed);
    const Program program = program_of(random_graph(random, 30));
    for (const Segment& s : segments_of(program)) {
      const std::vector<SegmentOption> options = recompute_options(program, s);
      EXPECT_TRUE(options.front().recomputed.empty());
      EXPECT_LE(options.size(), size_t{1} << s.candidates.size());
      for (const SegmentOption& option : options) {
        EXPECT_TRUE(std::ranges::is_sorted(option.recomputed));
        for (const SegmentOutput& o : option.recomputed) {
          EXPECT_TRUE(program.nodes[s.first + o.node].op->recomputable());
        }
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
