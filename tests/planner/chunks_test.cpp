// Regions in chunks: those of a size, all that a model has, and the MLPs of its blocks.

#include "spool/planner/chunks.h"

#include <algorithm>

#include "spool/autograd/chunks/cut.h"
#include "spool/autograd/ops.h"
#include "spool/planner/policy.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int64_t tokens_per_row = 6, channels = 8;

// A model of blocks, as a program that has run on meta.  Nodes of a block: 0 norm, 1 qkv,
// 2 attention, 3 projection, 4 add, 5 norm, 6 fc, 7 gelu, 8 projection, 9 add.
class Blocks {
 public:
  explicit Blocks(int64_t batch, int layers = 2) : batch_(batch) {
    for (int i = 0; i < layers; ++i) scopes_.push_back({.name = "block"});
  }

  std::vector<ScopeOptions>& scopes() { return scopes_; }
  // Whether the caller reads what gelu computes.
  bool reads_gelu = false;

  Program run(bool recording = true, const Plan& plan = {}) {
    Tape tape(stream_, {.plan = plan, .recording = recording});
    Var x = tape.input(Tensor({Shape{batch_, tokens_per_row, channels}}, stream_),
                       /*needs_grad=*/recording);
    for (const ScopeOptions& options : scopes_) x = block(std::move(x), options);
    const Tensor targets({Shape{batch_, tokens_per_row}, DType::i32}, stream_);
    const Var loss = linear_cross_entropy(x, wide_, tape.input(targets));
    if (recording) {
      tape.backward(loss);
    } else {
      (void)loss.tensor();
    }
    return tape.take_program();
  }

 private:
  Parameter make(const Shape& shape) {
    return {.name = "weight", .data = Tensor({shape}, stream_)};
  }

  Var block(Var x, const ScopeOptions& options) {
    const Tape::Scope scope(x.tape(), options);
    Var h = layer_norm(x, vector_, vector_);
    h = attention(linear(h, packed_), Heads{.query = 2, .key = 2});
    x = add(x, linear(h, square_));
    h = linear(layer_norm(x, vector_, vector_), wide_);
    h = gelu(h);
    if (reads_gelu) (void)h.tensor();
    return add(x, linear(h, tall_));
  }

  int64_t batch_;
  MetaStream stream_{Machine{}};
  std::vector<ScopeOptions> scopes_;
  Parameter vector_ = make({channels}), square_ = make({channels, channels}),
            packed_ = make({3 * channels, channels}), wide_ = make({4 * channels, channels}),
            tall_ = make({channels, 4 * channels});
};

ValueId output_of(const Program& program, NodeId n) { return program.nodes[n].outputs.front(); }

TEST(ChunkRegion, HasWhatIsReadOutsideAsLeaves) {
  for (const bool recording : {true, false}) {
    const Program program = Blocks(4).run(recording);
    const std::optional<Region> mlp = chunk_region(program, 5, 9, /*rows=*/7);
    EXPECT_EQ(mlp, (Region{.first = 5, .last = 9, .chunks = 4, .leaves = {output_of(program, 9)}}));
    const std::optional<Region> part = chunk_region(program, 4, 6, /*rows=*/1);
    EXPECT_EQ(part->leaves, (std::vector{output_of(program, 4), output_of(program, 6)}));
    EXPECT_EQ(part->chunks, 4 * tokens_per_row);
    const std::optional<Region> block = chunk_region(program, 0, 9, /*rows=*/3);
    EXPECT_EQ(block->chunks, 2);  // of the batch, since attention looks along T
  }
}

TEST(ChunkRegion, HasWhatTheCallerReadsAsALeaf) {
  Blocks net(2);
  net.reads_gelu = true;
  const Program program = net.run();
  EXPECT_EQ(chunk_region(program, 5, 9, 2)->leaves,
            (std::vector{output_of(program, 7), output_of(program, 9)}));
  // Backward begins at the loss.
  EXPECT_EQ(chunk_region(program, 19, 20, 2)->leaves, std::vector{output_of(program, 20)});
}

TEST(ChunkRegion, IsNoRegionIfItIsOneChunk) {
  const Program program = Blocks(4).run();
  EXPECT_FALSE(chunk_region(program, 5, 9, 4 * tokens_per_row));
  EXPECT_FALSE(chunk_region(program, 5, 9, int64_t{1} << 40));
  EXPECT_EQ(chunk_region(program, 5, 9, 4 * tokens_per_row - 1)->chunks, 2);
}

TEST(ChunkRegion, SaysWhyThereIsNone) {
  const auto refused = [](const Program& program, NodeId first, NodeId last, int64_t rows,
                          std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::invalid, words, [&] { chunk_region(program, first, last, rows); });
  };
  const Program program = Blocks(4).run(), single = Blocks(1).run();
  refused(program, 5, 9, 0, {"chunks of 0 rows", "at least 1"});
  refused(program, 5, 21, 8, {"nodes 5 to 21 of a tape of 21"});
  refused(program, -1, 9, 8, {"nodes -1 to 9"});
  refused(single, 1, 3, 2, {"nodes 1 to 3 cannot run in chunks", "extent of 1"});
  MetaStream stream{Machine{}};
  Tape tape(stream);
  const Var x = tape.input(Tensor({Shape{4, 4}}, stream));
  (void)gelu(gelu(x));
  refused(tape.program(), 0, 1, 2, {"nodes 0 to 1", "nothing of what they compute is read"});
}

TEST(FindRegions, FindsTheLongestSpansOfEachExtent) {
  for (const bool recording : {true, false}) {
    const int64_t rows = 4 * tokens_per_row;
    EXPECT_EQ(find_regions(Blocks(4).run(recording)), (std::vector<CuttableNodes>{{0, 1, rows},
                                                                                  {3, 9, rows},
                                                                                  {10, 11, rows},
                                                                                  {13, 19, rows},
                                                                                  {20, 20, rows},
                                                                                  {0, 9, 4},
                                                                                  {10, 19, 4}}));
  }
}

TEST(FindRegions, LeavesOutWhatHasOneRow) {
  EXPECT_EQ(find_regions(Blocks(1, 1).run()),
            (std::vector<CuttableNodes>{
                {0, 1, tokens_per_row}, {3, 9, tokens_per_row}, {10, 10, tokens_per_row}}));
}

// The sums of a loss are complete only after the last chunk.
TEST(FindRegions, EndWhereASumIsReadAndAtCheckpoints) {
  MetaStream stream{Machine{}};
  Tape tape(stream);
  Parameter weight{.name = "weight", .data = Tensor({Shape{8, 8}}, stream)};
  Var x = tape.input(Tensor({Shape{4, 8}}, stream));
  x = gelu(gelu(x));
  const Var targets = tape.input(Tensor({Shape{4}, DType::i32}, stream));
  const Var loss = linear_cross_entropy(x, weight, targets, {.reduction = Reduction::sum});
  const Var y = gelu(x);
  (void)scale(loss, 2).tensor();
  (void)checkpoint(tape, [&] { return gelu(gelu(y)); }).tensor();
  // Node 2 is the loss, 4 reads it.
  EXPECT_EQ(find_regions(tape.program()),
            (std::vector<CuttableNodes>{{0, 3, 4}, {3, 4, 4}, {5, 6, 4}}));
}

// Every span it finds can be cut, and with one node more not to the same extent.
TEST(FindRegions, AgreesWithEverySpan) {
  const Program program = Blocks(4, 1).run();
  std::vector<CuttableNodes> all;
  const auto extent = [&](NodeId first, NodeId last) -> int64_t {
    const bool is_inside = 0 <= first && (last < 10 || (first == 10 && last == 10));
    if (!is_inside) return 0;
    const Cut c = cut(program, first, last);
    return c ? c.extent : 0;
  };
  for (NodeId first = 0; first <= 10; ++first) {
    for (NodeId last = first; last <= 10; ++last) {
      const int64_t e = extent(first, last);
      if (e == 0 || extent(first - 1, last) == e || extent(first, last + 1) == e) continue;
      all.push_back({first, last, e});
    }
  }
  std::vector<CuttableNodes> found = find_regions(program);
  std::ranges::sort(found, {}, [](const CuttableNodes& s) { return std::pair(s.first, s.last); });
  EXPECT_EQ(found, all);
}

TEST(ChunkMlps, BeginAtTheNormAndEndWithTheBlock) {
  for (const bool recording : {true, false}) {
    const Program program = Blocks(4).run(recording);
    const std::vector<Region> expected{
        {.first = 5, .last = 9, .chunks = 3, .leaves = {output_of(program, 9)}},
        {.first = 15, .last = 19, .chunks = 3, .leaves = {output_of(program, 19)}}};
    EXPECT_EQ(chunk_mlps(program, 8), expected);
    EXPECT_EQ(chunk_mlps(program, 4 * tokens_per_row), std::vector<Region>{});
    EXPECT_EQ(chunk_mlps(Blocks(1).run(recording), 3).size(), 2u);
  }
}

TEST(ChunkMlps, SayWhyThereAreNone) {
  const auto sentence = [](const Program& program) {
    return error_of([&] { (void)chunk_mlps(program, 8); });
  };
  MetaStream stream{Machine{}};
  Tape tape(stream);
  const Var x = gelu(tape.input(Tensor({Shape{4, 8}}, stream)));
  EXPECT_TRUE(contains(sentence(tape.program()), "no outermost scopes"));
  {
    const Tape::Scope scope(tape, {.name = "block"});
    (void)attention(tape.input(Tensor({Shape{2, 1, 24}}, stream)), Heads{.query = 1, .key = 1});
  }
  EXPECT_EQ(sentence(tape.program()), "");
  const auto fields = expect_error(ErrorKind::invalid, {"chunks of -1 rows"},
                                   [&] { (void)chunk_mlps(tape.program(), -1); });
  EXPECT_TRUE(fields.settings.empty());
}

// Plans of the policy that recomputes blocks have the chunked region inside each.
TEST(ChunkMlps, LieInRecomputedBlocks) {
  Blocks net(4);
  const auto plan = [&](bool block, int64_t rows) {
    const Policy policy{.block = block, .mlp_chunk = rows};
    return plan_from_policy(policy, {}, [&](const Plan& p) {
      return RehearsedTape{.program = net.run(/*recording=*/true, p)};
    });
  };
  const ValueId a = output_of(net.run(), 9), b = output_of(net.run(), 19);
  const std::vector<Region> both{{.first = 0, .last = 9},
                                 {.first = 5, .last = 9, .chunks = 3, .leaves = {a}},
                                 {.first = 10, .last = 19},
                                 {.first = 15, .last = 19, .chunks = 3, .leaves = {b}}};
  EXPECT_EQ(plan(true, 8).regions, both);
  EXPECT_NO_THROW(check_plan(plan(true, 8)));
  EXPECT_EQ(plan(false, 8).regions, (std::vector{both[1], both[3]}));
  EXPECT_EQ(plan(true, 24).regions, (std::vector{both[0], both[2]}));
  EXPECT_EQ(plan(false, 0).regions, std::vector<Region>{});
  EXPECT_EQ(chunk_mlps(net.run(true, plan(true, 8)), 8), (std::vector{both[1], both[3]}));
}

}  // namespace
}  // namespace spool::testing
