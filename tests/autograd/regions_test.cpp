// runs: threads
// Regions of a plan beside checkpoints: those that do not nest are refused before their op runs.

#include "spool/autograd/ops.h"
#include "tests/autograd/saved_tensors_testing.h"

namespace spool::testing {
namespace {

class RegionsBesideCheckpoints : public ChainTest {
 protected:
  Var step(size_t i, const Var& h) { return gelu(linear(h, weights[i])); }  // two nodes
};

TEST_F(RegionsBesideCheckpoints, ARegionThatEndsInsideACheckpointIsRefusedBeforeItsOpRuns) {
  Tape tape(stream, {.plan = {.regions = {{0, 3}}}});
  const Var a = step(0, tape.input(x));
  checkpoint(tape, [&] {
    const Var b = gelu(linear(a, weights[1]));
    const uint64_t launches = stream.launches();
    const size_t live = stream.memory().live;
    expect_error(ErrorKind::invalid, {"nodes 0 to 3", "checkpoint", "node 2", "nest"},
                 [&] { linear(b, weights[2]); });
    EXPECT_EQ(stream.launches(), launches);
    EXPECT_EQ(stream.memory().live, live);
    EXPECT_EQ(tape.nodes().size(), 4u);
  });
}

TEST_F(RegionsBesideCheckpoints, ARegionThatReachesBeyondACheckpointIsRefused) {
  Tape tape(stream, {.plan = {.regions = {{1, 2}}}});
  const Var a = checkpoint(tape, [&] { return step(0, tape.input(x)); });
  const uint64_t launches = stream.launches();
  for (int again = 0; again < 2; ++again) {
    expect_error(ErrorKind::invalid, {"nodes 1 to 2", "beyond the checkpoint", "after node 1"},
                 [&] { linear(a, weights[1]); });
  }
  EXPECT_EQ(stream.launches(), launches);
  expect_error(ErrorKind::invalid, {"nodes 1 to 2", "beyond the checkpoint"}, [&] {
    tape.backward({Root{a, dy}});
  });
}

TEST_F(RegionsBesideCheckpoints, ARegionThatReachesBeyondTheTapeIsRefused) {
  for (const Region& region : {Region{0, 2}, Region{1, 9}, Region{2, 3}}) {
    Tape tape(stream, {.plan = {.regions = {region}}});
    const Var y = step(0, tape.input(x));
    expect_error(ErrorKind::invalid,
                 {sentence("nodes ", region.first), "end of the tape", "2 nodes"}, [&] {
                   tape.backward({Root{y, dy}});
                 });
  }
}

TEST_F(RegionsBesideCheckpoints, RegionsThatNestWithCheckpointsKeepTheBits) {
  const Bits expected = gradients_of_gelu_chain({});
  // Around the checkpoint of nodes 2 to 5, in it, and around it with the same end.
  for (const Region& region :
       {Region{0, 13}, Region{2, 3}, Region{2, 5}, Region{3, 4}, Region{1, 5}, Region{0, 5}}) {
    Tape tape(stream, {.plan = {.regions = {region}}});
    Var h = step(0, tape.input(x));
    h = checkpoint(tape, [&] { return step(2, step(1, h)); });
    for (size_t i = 3; i < 7; ++i) h = step(i, h);
    tape.backward({Root{h, dy}});
    EXPECT_EQ(take_gradients(), expected) << region.first << " to " << region.last;
  }
}

}  // namespace
}  // namespace spool::testing
