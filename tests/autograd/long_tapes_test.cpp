// runs: slow
// Tapes of tens of thousands of nodes: no recursion is as deep as the tape, and the time of a step
// grows with its length, not with its square.

#include <ctime>
#include <limits>

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

// Seconds of this thread's processor.
double seconds_of(const std::function<void(int)>& step, int n) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  step(n);
  return now() - begin;
}

// Twice the length takes at most 2.5 times as long: four times the length, the square of that.  A
// time is the least of several, as many as a busy machine needs.
void expect_linear(const std::function<void(int)>& step) {
  constexpr double bound = 2.5 * 2.5;
  double once = std::numeric_limits<double>::max(), fourfold = once;
  for (int i = 0; i < 3 || (i < 20 && fourfold > bound * once); ++i) {
    once = std::min(once, seconds_of(step, 4000));
    fourfold = std::min(fourfold, seconds_of(step, 16000));
  }
  EXPECT_LE(fourfold, bound * once)
      << once << " s, and " << fourfold << " s for four times as many";
}

TEST(LongTapes, TheTimeOfOffloadsGrowsWithTheirNumber) {
  expect_linear([](int n) { rehearse_chain(n, everywhere(Placement::offload, n)); });
}

TEST(LongTapes, TheTimeOfPlannedOffloadsGrowsWithTheirNumber) {
  expect_linear([](int n) {
    Plan plan = everywhere(Placement::offload, n);
    // Each is read long before its fetch.
    for (ValueId v = 0; v <= n; ++v)
      plan.offloads.push_back({.value = v, .release = v + 3, .fetch = 0});
    rehearse_chain(n, plan);
  });
}

TEST(LongTapes, TheTimeOfACheckpointGrowsWithWhatItReads) {
  expect_linear([](int n) {
    MetaStream stream{Machine{}};
    Tape tape(stream);
    std::vector<Var> inputs;
    for (int i = 0; i < n; ++i) inputs.push_back(tape.input(Tensor(small, stream), true));
    Var sum = inputs.front();
    checkpoint(tape, [&] {
      for (const Var& x : inputs) sum = gelu(add(sum, x));
    });
    tape.backward({Root{sum, Tensor(small, stream)}});
  });
}

// What the inner checkpoint reads is not needed to recompute it, so it is no use of the outer's.
TEST(LongTapes, TheTimeOfNestedCheckpointsGrowsWithWhatTheyRead) {
  expect_linear([](int n) {
    MetaStream stream{Machine{}};
    Tape tape(stream);
    const Var x = tape.input(Tensor(small, stream), true);
    Var sum = x;
    checkpoint(tape, [&] {
      std::vector<Var> scaled;
      for (int i = 0; i < n; ++i) scaled.push_back(scale(x, i));
      checkpoint(tape, [&] {
        for (const Var& y : scaled) sum = add(sum, y);
      });
      sum = gelu(sum);
    });
    tape.backward({Root{sum, Tensor(small, stream)}});
  });
}

}  // namespace
}  // namespace spool::testing
