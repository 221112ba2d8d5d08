// runs: alone
// Under random mixtures of placements, regions, scopes, checkpoints, hooks, offload and delays, a
// step that fails, at whatever place, leaves nothing live, and the next has the bits of one that
// never failed.  Mixture i is Mixture(i, options).

#include <map>

#include "spool/runtime/memory/allocation_log.h"
#include "tests/autograd/mixture_testing.h"

namespace spool::testing {
namespace {

class Failures : public ::testing::Test {
 protected:
  // Runs the body for each mixture, with the bits of a step that keeps all values.
  using Body = std::function<void(MixtureRun&, const Bytes& expected, Random&)>;
  void for_mixtures(int64_t count, MixtureOptions options, const Body& body) {
    for (int64_t i = 0; i < count && !HasFailure(); ++i) {
      SCOPED_TRACE(sentence("mixture ", i));
      Random random(/*seed=*/2, static_cast<uint64_t>(i));
      options.backward_follows = random.next() % 4 != 0;
      Mixture mixture(static_cast<uint64_t>(i), options);
      MixtureRun run(mixture);
      const Bytes expected = run.step(/*mixed=*/false);
      if (i % 2 == 1) {
        run.faults.at_each = random_delays(
            run.stream, [&run] { return run.link.get(); }, static_cast<uint64_t>(i));
      }
      run.faults.arm(Faults::never);
      ASSERT_TRUE(run.step() == expected) << "without a failure";
      body(run, expected, random);
      for (const auto& [place, times] : run.faults.happened()) happened_[place] += times;
    }
  }

  static void expect_as_before(MixtureRun& run, const Bytes& expected) {
    run.expect_nothing_live();
    expect_free_memory_is_idle(run.stream, *run.link);
    run.faults.arm(Faults::never);
    EXPECT_TRUE(run.step() == expected);
    run.expect_nothing_live();
  }

  std::map<std::string, int> happened_;  // by place
};

TEST_F(Failures, InOpsAndHooksLeaveNothingLiveAndTheSameBits) {
  for_mixtures(size_here(16, 16), {}, [&](MixtureRun& run, const Bytes& expected, Random& random) {
    const int64_t places = run.faults.passed();
    for (const int64_t place : some_of(places, size_here(40, 30), random)) {
      SCOPED_TRACE(sentence("place ", place, " of ", places));
      run.faults.arm(place);
      EXPECT_THROW(run.step(), InjectedFailure);
      expect_as_before(run, expected);
      if (HasFailure()) return;
    }
  });
  if (HasFailure()) return;
  for (const char* place :
       {"infer", "before forward", "after forward", "saves", "before replay", "after replay",
        "before backward", "after backward", "before pack", "after pack", "before unpack",
        "after unpack", "in backward, with one gradient", "with scratch memory"}) {
    EXPECT_GT(happened_[place], 0) << place;
  }
}

// The op that failed in forward is applied again to the same tape.
TEST_F(Failures, InForwardLeaveTheTapeAsBefore) {
  int64_t again = 0;
  const MixtureOptions options{.applies_again = true};
  const auto body = [&](MixtureRun& run, const Bytes& expected, Random& random) {
    const int64_t places = run.faults.passed();
    const std::vector<size_t> live = run.live_after_forward();
    for (const int64_t place : some_of(places, size_here(40, 20), random)) {
      SCOPED_TRACE(sentence("place ", place, " of ", places));
      run.faults.arm(place);
      try {
        EXPECT_TRUE(run.step() == expected);
        ++again;
      } catch (const InjectedFailure&) {
      }
      expect_as_before(run, expected);
      if (HasFailure()) return;
    }
  };
  for_mixtures(size_here(10, 8), options, body);
  EXPECT_GT(again, 0);
}

TEST_F(Failures, OfAnyAllocationLeaveNothingLiveAndTheSameBits) {
  for_mixtures(size_here(10, 8), {}, [&](MixtureRun& run, const Bytes& expected, Random& random) {
    const AllocationLog log(run.stream.arena());
    run.step();
    const Lifetimes lifetimes = log.lifetimes();
    const auto allocations = static_cast<int64_t>(lifetimes.all.size());
    for (const int64_t count : some_of(allocations, size_here(40, 20), random)) {
      SCOPED_TRACE(sentence("allocation ", count, " of ", allocations));
      const std::optional<Layout> layout = layout_of_first(lifetimes, count);
      {
        const PlacedStep placed(run.stream.arena(), layout);
        expect_error(ErrorKind::invalid, {"layout: allocation ", "one more"}, [&] { run.step(); });
      }
      expect_as_before(run, expected);
      if (HasFailure()) return;
    }
  });
}

TEST_F(Failures, OfHostMemoryOrADiskLeaveNothingLiveAndTheSameBits) {
  for_mixtures(size_here(24, 8), {}, [&](MixtureRun& run, const Bytes& expected, Random& random) {
    const auto expect_too_small = [&](bool of_host, size_t peak) {
      const auto pages = static_cast<int64_t>(peak / HostLink::alignment);
      for (const int64_t page : some_of(pages, size_here(8, 4), random)) {
        SCOPED_TRACE(sentence(page, " of ", pages, of_host ? " pages on the host" : " on disk"));
        const size_t bytes = static_cast<size_t>(page) * HostLink::alignment;
        run.connect(of_host ? bytes : run.plenty, of_host ? run.disk_bytes : bytes);
        expect_error(ErrorKind::memory, {of_host ? "host: " : "disk: "}, [&] { run.step(); });
        run.expect_nothing_live();
        expect_free_memory_is_idle(run.stream, *run.link);
        run.connect(run.plenty, run.disk_bytes);
        EXPECT_TRUE(run.step() == expected);
        if (HasFailure()) return;
      }
    };
    const size_t host_peak = run.link->memory().peak, disk_peak = run.offloader->disk().peak;
    // A disk is tried with a page of the host's memory, which a step may not need.
    if (run.offloader->offloaded().tensors > 0) expect_too_small(true, host_peak);
    expect_too_small(false, disk_peak);
  });
}

void fail_later() { throw InjectedFailure(); }

int64_t places_of(Mixture& mixture) {
  MixtureRun run(mixture);
  run.step();
  return run.faults.passed();
}

// A stream that has failed stays so: each place needs another.
TEST_F(Failures, OfQueuedWorkLeaveNothingLive) {
  for (int64_t i = 0; i < size_here(10, 4) && !HasFailure(); ++i) {
    Mixture mixture(static_cast<uint64_t>(i), {});
    Random random(/*seed=*/3, static_cast<uint64_t>(i));
    const int64_t places = places_of(mixture);
    for (const int64_t place : some_of(places, size_here(30, 15), random)) {
      SCOPED_TRACE(sentence("mixture ", i, ", place ", place));
      MixtureRun run(mixture);
      run.faults.at_each = random_delays(
          run.stream, [&] { return run.link.get(); }, 7);
      run.faults.arm(place, [&] { run.stream.host_work("failing", 0, fail_later); });
      EXPECT_THROW(run.step(), InjectedFailure);
      run.expect_nothing_live();
      EXPECT_THROW(run.stream.synchronize(), InjectedFailure);
    }
  }
}

TEST_F(Failures, OfACopyLeaveNothingLiveAndTheSameBitsOnAnotherLink) {
  int64_t noticed = 0;
  const MixtureOptions options{.tokens_move = false};  // without their values, kernels fail
  const auto body = [&](MixtureRun& run, const Bytes& expected, Random& random) {
    const int64_t places = run.faults.passed();
    for (const int64_t place : some_of(places, size_here(30, 15), random)) {
      SCOPED_TRACE(sentence("place ", place, " of ", places));
      const bool out = random.next() % 2 == 0;
      run.faults.arm(place, [&] {
        (out ? run.link->out() : run.link->in()).host_work("failing", 0, fail_later);
      });
      try {
        run.step();
      } catch (const InjectedFailure&) {
        ++noticed;
      }
      EXPECT_THROW(run.link->synchronize(), InjectedFailure);
      run.expect_nothing_live();
      expect_free_memory_is_idle(run.stream, nullptr,
                                 [&] { run.connect(run.plenty, run.disk_bytes); });
      run.faults.arm(Faults::never);
      EXPECT_TRUE(run.step() == expected);
      if (HasFailure()) return;
    }
  };
  for_mixtures(size_here(10, 8), options, body);
  EXPECT_GT(noticed, 0);
}

}  // namespace
}  // namespace spool::testing
