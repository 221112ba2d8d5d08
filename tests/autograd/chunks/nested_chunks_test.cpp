// runs: threads
// Regions in chunks with what else decides about saved values: placements, hooks, checkpoints and
// recomputed regions.

#include <set>

#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

using NestedResults = std::vector<std::vector<double>>;

// linear, the region (linear, gelu, linear), gelu: x 0, weight 1, a 2, b 3, c 4, d 5, e 6.
class NestedChunks : public ::testing::Test {
 protected:
  static constexpr ValueId input = 2, leaf = 5;

  CpuStream stream{chunk_memory, 2};
  HostLink link{stream, chunk_memory};
  Offloader offloader{link};
  Net net{stream, {.T = 32}};
  Tensor dy = normal(net.x.shape(), DType::f32, stream, 9);

  static Plan in_chunks() { return {.regions = {{1, 3, 4, {leaf}}}}; }
  static Plan placed(const std::vector<ValueId>& some, Placement p) {
    Plan plan = in_chunks();
    plan.placement.resize(7, Placement::keep);
    for (const ValueId v : some) plan.placement[v] = p;
    return plan;
  }
  TapeOptions options(Plan plan) {
    TapeOptions how = net.options(std::move(plan));
    how.offloader = &offloader;
    return how;
  }
  Var region(const Var& a) { return linear(gelu(linear(a, net.square)), net.square); }
  Var forward(const Var& x) { return gelu(region(linear(x, net.square))); }
  NestedResults backward(Tape& tape, const Var& y) {
    NestedResults all{values(y.tensor())};
    tape.backward({{y, dy}});
    all.push_back(values(std::exchange(net.square.grad, {})));
    return all;
  }
  NestedResults results(const Plan& plan) {
    Tape tape(stream, options(plan));
    return backward(tape, forward(tape.input(net.x)));
  }
  uint64_t launches_of(const Plan& plan) {
    const uint64_t before = stream.launches();
    results(plan);
    return stream.launches() - before;
  }
  // What the tape holds after forward, besides its output.
  size_t live_after_forward(const Plan& plan) {
    Tape tape(stream, options(plan));
    const Var x = tape.input(net.x);
    const size_t before = stream.memory().live;
    const Var y = forward(x);
    return stream.memory().live - before - y.tensor().nbytes();
  }
};

TEST_F(NestedChunks, IgnorePlacementsOfInnerValues) {
  const NestedResults expected = results(in_chunks());
  const uint64_t launches = launches_of(in_chunks());
  const size_t live = live_after_forward(in_chunks());
  EXPECT_EQ(live, 2 * dy.nbytes()) << "the region's input and its leaf";
  for (const Placement p : {Placement::recompute, Placement::offload}) {
    const Plan plan = placed({3, 4}, p);
    EXPECT_EQ(results(plan), expected) << name(p);
    EXPECT_EQ(launches_of(plan), launches) << name(p);
    EXPECT_EQ(live_after_forward(plan), live) << name(p);
  }
  EXPECT_EQ(offloader.offloaded().tensors, 0);
}

TEST_F(NestedChunks, ObeyPlacementsOfInputsAndLeaves) {
  const NestedResults expected = results(in_chunks());
  for (const ValueId v : {input, leaf}) {
    EXPECT_EQ(results(placed({v}, Placement::recompute)), expected) << v;
    EXPECT_GT(launches_of(placed({v}, Placement::recompute)), launches_of(in_chunks())) << v;
    EXPECT_EQ(live_after_forward(placed({v}, Placement::recompute)), dy.nbytes()) << v;
    const int64_t offloaded = offloader.offloaded().tensors;
    EXPECT_EQ(results(placed({v}, Placement::offload)), expected) << v;
    EXPECT_EQ(offloader.offloaded().tensors - offloaded, 1) << v;
  }
  EXPECT_EQ(live_after_forward(placed({input, leaf}, Placement::recompute)), 0u);
  EXPECT_EQ(results(placed({input, leaf}, Placement::recompute)), expected);
  EXPECT_EQ(results(placed({input, leaf}, Placement::offload)), expected);
}

TEST_F(NestedChunks, ObeyOffloadsOfSomeRows) {
  const NestedResults expected = results(in_chunks());
  for (const ValueId v : {input, leaf}) {
    Plan plan = placed({v}, Placement::offload);
    plan.offloads = {{.value = v, .rows = 1}};
    const int64_t bytes = offloader.offloaded().bytes;
    EXPECT_EQ(results(plan), expected) << v;
    EXPECT_EQ(offloader.offloaded().bytes - bytes, static_cast<int64_t>(dy.nbytes() / 2)) << v;
  }
}

// Notes the values that it packs, and keeps them as they are.
struct NotingHooks final : SavedTensorHooks {
  std::set<ValueId> packed;
  std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo& info) override {
    packed.insert(info.value);
    return keep(t);
  }
};

TEST_F(NestedChunks, ShowHooksTheirInputsAndLeavesOnly) {
  const auto packed = [&](const Plan& plan) {
    NotingHooks hooks;
    Tape tape(stream, options(plan));
    const Tape::HooksScope scope(tape, hooks);
    backward(tape, forward(tape.input(net.x)));
    return hooks.packed;
  };
  EXPECT_EQ(packed({}), (std::set<ValueId>{2, 3, 4, 5}));
  EXPECT_EQ(packed(in_chunks()), (std::set<ValueId>{input, leaf}));
}

TEST_F(NestedChunks, AreOneNodeOfARecomputedRegion) {
  const NestedResults expected = results(in_chunks());
  for (const Region& around : {Region{0, 4}, Region{1, 3}, Region{1, 4}, Region{0, 3}}) {
    Plan plan = in_chunks();
    plan.regions.insert(plan.regions.begin(), around);
    if (around.first == 1) std::ranges::stable_sort(plan.regions, {}, &Region::chunks);
    EXPECT_EQ(results(plan), expected) << around.first << " to " << around.last;
  }
  Plan all = in_chunks();
  all.regions.insert(all.regions.begin(), {0, 4});
  EXPECT_EQ(live_after_forward(all), 0u);
}

TEST_F(NestedChunks, MayLieInCheckpoints) {
  const NestedResults expected = results(in_chunks());
  for (const int depth : {1, 2, 3}) {
    Tape tape(stream, options(in_chunks()));
    const Var x = tape.input(net.x);
    const std::function<Var(int)> nested = [&](int more) {
      return more == 0 ? forward(x) : checkpoint(tape, [&] { return nested(more - 1); });
    };
    EXPECT_EQ(backward(tape, nested(depth)), expected) << depth;
  }
  Tape tape(stream, options(in_chunks()));
  const Var a = linear(tape.input(net.x), net.square);
  const Var d = checkpoint(tape, [&] { return region(a); });
  EXPECT_EQ(backward(tape, gelu(d)), expected) << "of the same nodes";
}

TEST_F(NestedChunks, FlattenCheckpointsInside) {
  const NestedResults expected = results(in_chunks());
  const uint64_t launches = launches_of(in_chunks()), before = stream.launches();
  Tape tape(stream, options(in_chunks()));
  const Var b = linear(linear(tape.input(net.x), net.square), net.square);
  const Var c = checkpoint(tape, [&] { return gelu(b); });
  const Var y = gelu(linear(c, net.square));
  EXPECT_EQ(backward(tape, y), expected);
  EXPECT_EQ(stream.launches() - before, launches);
}

TEST_F(NestedChunks, GoBesideCheckpoints) {
  const NestedResults expected = results(in_chunks());
  Tape tape(stream, options(in_chunks()));
  const Var x = tape.input(net.x);
  const Var a = checkpoint(tape, [&] { return linear(x, net.square); });
  const Var d = region(a);
  EXPECT_EQ(backward(tape, checkpoint(tape, [&] { return gelu(d); })), expected);
}

}  // namespace
}  // namespace spool::testing
