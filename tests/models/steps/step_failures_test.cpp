// runs: threads, alone
// Training steps under random mixtures of placements, regions, scopes, checkpoints, hooks, offload,
// places of the optimizer's state and delays: a failed step leaves nothing live, and the next one
// has the bits of a run without failures.  Mixture i is Mixture(i, options_of_steps()).

#include "spool/kernels/reduce.h"
#include "spool/runtime/memory/allocation_log.h"
#include "tests/models/steps/step_failures_testing.h"

namespace spool::testing {
namespace {

// A run with failures, and one without that keeps all.
struct Pair {
  Mixture mixture;
  MixedSteps kept, mixed;
  Random random;
  int64_t step = 0;

  explicit Pair(int64_t i)
      : mixture(static_cast<uint64_t>(i), options_of_steps()),
        kept(mixture, /*mixed=*/false, OptimizerState::device),
        mixed(mixture, /*mixed=*/true, optimizer_states[i % 3]),
        random(/*seed=*/4, static_cast<uint64_t>(i)) {
    if (i % 2 == 0) return;
    mixed.faults.at_each = random_delays(
        mixed.stream, [] { return nullptr; }, static_cast<uint64_t>(i));
  }

  // Runs the next step without a failure.
  void expect_equal_steps() {
    mixture.program.at_place = {};
    kept.run(step);
    mixture.program.at_place = [this](const char* place) { mixed.faults.pass(place); };
    mixed.faults.arm(Faults::never);
    mixed.run(step++);
    EXPECT_TRUE(mixed.outcome() == kept.outcome()) << "step " << step - 1;
  }
};

TEST(StepFailures, InOpsAndHooksLeaveNothingLiveAndTheSameBits) {
  for (int64_t i = 0; i < size_here(12, 6) && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(sentence("mixture ", i));
    Pair pair(i);
    pair.expect_equal_steps();
    const int64_t places = pair.mixed.faults.passed();
    for (const int64_t place : some_of(places, size_here(30, 15), pair.random)) {
      SCOPED_TRACE(sentence("place ", place, " of ", places));
      pair.mixed.faults.arm(place);
      EXPECT_THROW(pair.mixed.run(pair.step), InjectedFailure);
      pair.mixed.expect_as_before_the_step();
      pair.expect_equal_steps();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Whether the optimizer's update makes the allocation.
bool is_of_update(const Lifetime& l) {
  const std::string_view name = l.label.name;
  return name == SquaredNorm::name || name == "optimizer bucket";
}

void expect_allocations_can_fail(bool of_update) {
  int64_t failed = 0;
  for (int64_t i = 0; i < size_here(12, 6) && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(sentence("mixture ", i));
    Pair pair(i);
    pair.expect_equal_steps();
    const AllocationLog log(pair.mixed.stream.arena());
    pair.expect_equal_steps();
    const Lifetimes lifetimes = log.lifetimes();
    const auto count = static_cast<int64_t>(lifetimes.all.size());
    for (const int64_t at : some_of(count, of_update ? count : size_here(30, 15), pair.random)) {
      if (is_of_update(lifetimes.all[static_cast<size_t>(at)]) != of_update) continue;
      SCOPED_TRACE(sentence("allocation ", at, " of ", count));
      const std::optional<Layout> layout = layout_of_first(lifetimes, at);
      {
        const PlacedStep placed(pair.mixed.stream.arena(), layout);
        expect_error(ErrorKind::invalid, {"layout: allocation ", "one more"},
                     [&] { pair.mixed.run(pair.step); });
      }
      ++failed;
      pair.mixed.expect_as_before_the_step();
      pair.expect_equal_steps();
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(failed, 0);
}

TEST(StepFailures, OfAnyAllocationOfATapeLeaveNothingLiveAndTheSameBits) {
  expect_allocations_can_fail(/*of_update=*/false);
}

TEST(StepFailures, OfAnyAllocationOfTheUpdateLeaveNothingLiveAndTheSameBits) {
  expect_allocations_can_fail(/*of_update=*/true);
}

// A failed stream stays failed, so each place needs a new one.
TEST(StepFailures, OfQueuedWorkLeaveNothingLive) {
  for (int64_t i = 0; i < size_here(12, 6) && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(sentence("mixture ", i));
    Pair pair(i);
    pair.expect_equal_steps();
    const int64_t places = pair.mixed.faults.passed();
    for (const int64_t place : some_of(places, size_here(10, 5), pair.random)) {
      SCOPED_TRACE(sentence("place ", place, " of ", places));
      MixedSteps steps(pair.mixture, /*mixed=*/true, optimizer_states[i % 3]);
      pair.mixture.program.at_place = [&](const char* name) { steps.faults.pass(name); };
      steps.faults.arm(
          place, [&] { steps.stream.host_work("failing", 0, [] { throw InjectedFailure(); }); });
      EXPECT_THROW(
          {
            steps.run(0);
            steps.outcome();
          },
          InjectedFailure);
      steps.expect_nothing_live();
    }
  }
}

}  // namespace
}  // namespace spool::testing
