// Which kernels a region in chunks launches: once forward, recomputed as far as backward needs,
// once backward; and what traces and surveys tell of them.

#include <map>
#include <numeric>
#include <set>

#include "spool/autograd/survey.h"
#include "spool/runtime/meta/stream.h"
#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

// Kernels by task, node and chunk.
using Kernels = std::map<std::tuple<std::string, int64_t, int>, int>;

Kernels kernels_of(const ChunkCase& c, const Plan& plan, Stream& stream) {
  const auto trace = std::make_shared<Trace>();
  CaseRun run(c, stream, {.plan = plan});
  {
    const Traced traced(stream, trace);
    run.forward();
    run.output_tensors();
    run.backward();
  }
  Kernels all;
  for (const TraceSpan& span : trace->spans()) {
    if (span.activity != Activity::kernel || !span.context) continue;
    ++all[{span.context.task, span.context.node, span.context.chunk}];
  }
  run.take_gradients();
  return all;
}

std::set<int64_t> nodes_of(const Kernels& kernels, const std::string& task, int chunk) {
  std::set<int64_t> nodes;
  for (const auto& [which, count] : kernels) {
    const auto& [found, node, number] = which;
    if (found == task && number == chunk) nodes.insert(node);
  }
  return nodes;
}

TEST(WorkOfChunks, OfAnMlpIsForwardThenRecomputedUpToTheGeluThenBackward) {
  CpuStream cpu(chunk_memory, 2);
  MetaStream meta{Machine{}};
  for (Stream* const stream : std::initializer_list<Stream*>{&cpu, &meta}) {
    const ChunkCase& c = chunk_case("mlp");
    const Kernels whole = kernels_of(c, {}, *stream);
    const Kernels found = kernels_of(c, plan_of(c, 3), *stream);
    for (int chunk = 0; chunk < 3; ++chunk) {
      for (const auto& [which, count] : whole) {
        const auto& [task, node, none] = which;
        // The whole copies the gradient that dy is passed on as; a chunk has memory for it.
        EXPECT_LE(found.at({task, node, chunk}), count) << task << " " << node;
      }
      EXPECT_EQ(nodes_of(found, "forward", chunk), (std::set<int64_t>{0, 1, 2, 3, 4, 5}));
      EXPECT_EQ(nodes_of(found, "replay", chunk), (std::set<int64_t>{0, 1, 2}));
      for (const int64_t node : {0, 1, 2}) EXPECT_EQ(found.at({"replay", node, chunk}), 1) << node;
    }
    EXPECT_TRUE(nodes_of(found, "forward", -1).empty());
    EXPECT_TRUE(nodes_of(found, "replay", -1).empty());
  }
}

TEST(WorkOfChunks, NodesWithoutTheIndexRunOnceAndAreDifferentiatedOnce) {
  MetaStream stream{Machine{}};
  const ChunkCase& c = chunk_case("a_node_without_the_index");
  const Kernels whole = kernels_of(c, {}, stream);
  const Kernels found = kernels_of(c, plan_of(c, 5), stream);
  EXPECT_EQ(found.at({"forward", 0, -1}), whole.at({"forward", 0, -1}));
  EXPECT_EQ(found.at({"backward", 0, -1}), whole.at({"backward", 0, -1}));
  EXPECT_EQ(nodes_of(found, "forward", -1), std::set<int64_t>{0});
  EXPECT_EQ(nodes_of(found, "backward", -1), std::set<int64_t>{0});
  EXPECT_TRUE(nodes_of(found, "replay", -1).empty());
  for (int chunk = 0; chunk < 5; ++chunk) {
    EXPECT_EQ(nodes_of(found, "forward", chunk), (std::set<int64_t>{1, 2, 3}));
  }
}

TEST(WorkOfChunks, ALeafThatIsReadInsideIsRecomputed) {
  MetaStream stream{Machine{}};
  const ChunkCase& c = chunk_case("several_leaves");
  const Kernels found = kernels_of(c, plan_of(c, 2), stream);
  for (int chunk = 0; chunk < 2; ++chunk) {
    EXPECT_EQ(nodes_of(found, "replay", chunk), (std::set<int64_t>{0, 1, 2}));
  }
}

class SurveysOfChunks : public ::testing::Test {
 protected:
  struct Surveyed {
    std::map<std::tuple<Phase, NodeId>, double> seconds = {};  // by node
    double all = 0, clock = 0;
    size_t max_live = 0;
    uint64_t launches = 0;
  };
  static Surveyed survey_of(const ChunkCase& c, const Plan& plan, bool traced) {
    MetaStream stream{Machine{}};
    Surveyed found;
    Survey survey;
    CaseRun run(c, stream, {.plan = plan, .survey = &survey});
    const double before = stream.now();
    if (traced) stream.trace(std::make_shared<Trace>());  // so that no chunk is left out
    run.forward();
    run.output_tensors();
    run.backward();
    stream.trace(nullptr);
    found.clock = stream.now() - before;
    found.all = survey.other_seconds;
    for (const SurveyedWork& work : survey.works) {
      found.all += work.seconds;
      found.seconds[{work.phase, work.node}] += work.seconds;
    }
    found.max_live = survey.peak()->live;
    found.launches = stream.launches();
    run.take_gradients();
    return found;
  }
};

TEST_F(SurveysOfChunks, AccountForEverySecond) {
  for (const ChunkCase& c : chunk_cases()) {
    for (const int chunks : {2, static_cast<int>(c.extent)}) {
      const Surveyed found = survey_of(c, plan_of(c, chunks), /*traced=*/false);
      EXPECT_NEAR(found.all, found.clock, 1e-9 * found.clock) << c.name;
    }
  }
}

TEST_F(SurveysOfChunks, CountForChunksLeftOutWhatTheyTake) {
  for (const ChunkCase& c : chunk_cases()) {
    if (c.extent < 10) continue;
    const Plan plan = plan_of(c, 10);
    const Surveyed some = survey_of(c, plan, /*traced=*/false);
    const Surveyed all = survey_of(c, plan, /*traced=*/true);
    EXPECT_NEAR(some.clock, all.clock, 1e-9 * all.clock) << c.name;
    EXPECT_EQ(some.launches, all.launches) << c.name;
    EXPECT_EQ(some.max_live, all.max_live) << c.name;
    ASSERT_EQ(some.seconds.size(), all.seconds.size()) << c.name;
    for (const auto& [work, seconds] : all.seconds) {
      const auto& [phase, node] = work;
      EXPECT_NEAR(some.seconds.at(work), seconds, 1e-9 * all.clock)
          << c.name << ", " << name(phase) << " of node " << node;
    }
  }
}

TEST_F(SurveysOfChunks, TellTheRecomputationsOfARegion) {
  const ChunkCase& c = chunk_case("mlp");
  const Surveyed found = survey_of(c, plan_of(c, 4), /*traced=*/false);
  for (NodeId n = 0; n < 6; ++n) {
    EXPECT_TRUE(found.seconds.contains({Phase::forward, n})) << n;
    EXPECT_TRUE(found.seconds.contains({Phase::backward, n})) << n;
    const bool is_recomputed = n < 3;
    EXPECT_EQ(found.seconds.contains({Phase::recompute, n}), is_recomputed) << n;
  }
}

}  // namespace
}  // namespace spool::testing
