// Tapes of tens of thousands of nodes: no recursion is as deep as the tape.
// benchmarks/long_tapes.cpp measures how the time of a step grows with its length.

#include "spool/autograd/ops.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const Spec small{Shape{4}, DType::f32};

// One rehearsed step of n gelus in a row.
void rehearse_chain(int n, const Plan& plan) {
  MetaStream stream{Machine{}};
  HostLink link(stream, MetaStream::unlimited);
  Offloader offloader(link);
  Tape tape(stream, {.plan = plan, .offloader = &offloader});
  Var h = tape.input(Tensor(small, stream), true);
  for (int i = 0; i < n; ++i) h = gelu(h);
  tape.backward({Root{h, Tensor(small, stream)}});
}

Plan everywhere(Placement placement, int n) {
  return {.placement = std::vector(static_cast<size_t>(n) + 1, placement)};
}

TEST(LongTapes, RecomputeAChainOfAnyLength) {
  for (const int n : {20000, 50000}) rehearse_chain(n, everywhere(Placement::recompute, n));
}

TEST(LongTapes, RecomputeAChainOfCheckpointsOfAnyLength) {
  MetaStream stream{Machine{}};
  constexpr int n = 20000;
  // Each region's output is recomputed, so that the next one needs it first.
  Plan plan = everywhere(Placement::recompute, 2 * n);
  for (NodeId i = 0; i < n; ++i) plan.regions.push_back({.first = 2 * i, .last = 2 * i + 1});
  rehearse_chain(2 * n, plan);
}

TEST(LongTapes, OffloadAChainOfAnyLength) {
  rehearse_chain(16000, everywhere(Placement::offload, 16000));
}

}  // namespace
}  // namespace spool::testing
