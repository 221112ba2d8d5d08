// runs: threads
// A step of a small model whose parameters, gradients and state are on the host, and which fails at
// any copy, wait, event or allocation: nothing is live afterwards, no copy runs on in free memory,
// and the next step has its bits.

#include "spool/runtime/memory/allocation_log.h"
#include "tests/autograd/failure_testing.h"
#include "tests/models/steps/step_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{4} << 20;

std::vector<StepForm> forms_away() {
  std::vector<StepForm> forms;
  for (const UpdateTime update : {UpdateTime::end, UpdateTime::backward}) {
    for (const int64_t micro_batches : {1, 3}) {
      for (const double leaving : {0.0, 2.0}) {
        StepForm form{
            .name = name(update),
            .config = {.accumulate = micro_batches, .optimizer = AdamWSettings{.clip = 0}},
            .plans = {.host_bytes = plenty}};
        SmallModel::place_away(form.plans.step);
        form.plans.step.update = update;
        form.plans.step.units_leaving = leaving;
        form.plans.step.bucket_elements = 2048;
        forms.push_back(form);
      }
    }
  }
  return forms;
}

// A run that fails, with what it has live between steps, and the results that it is to have.
struct FailingHomes {
  FailingCpuStream stream{plenty, 2};
  SmallRun run;
  std::vector<size_t> live;
  SmallRun::Results wanted;
  int64_t refused = 0;   // failures after which all had to be initialised
  int64_t survived = 0;  // those in place of which the host waited

  explicit FailingHomes(const StepForm& form)
      : run(stream, form.config, form.plans), live(live_now()) {
    wanted = run.steps_from(0);
    CpuStream other(plenty, 2);
    StepPlans resident;
    resident.step.optimizer_state = OptimizerState::device;
    SmallRun without(other, form.config, resident);
    EXPECT_TRUE(without.steps_from(0) == wanted);
    run.initialise();
  }

  std::vector<size_t> live_now() const {
    return {stream.memory().live, run.runner.host_memory().live};
  }

  // Whether the first step does.
  bool fails() {
    try {
      run.step(0);
      return false;
    } catch (const Error& e) {
      EXPECT_TRUE(contains(e.what(), "a call that is to fail")) << e.what();
      return true;
    }
  }

  // After the first step, in which a wait may have failed before memory was freed.
  void expect_that_it_ran() {
    ++survived;
    EXPECT_TRUE(run.steps_from(1).state == wanted.state);
    EXPECT_EQ(live_now(), live);
    run.initialise();
  }

  // After a failure; then all is as before the first step.
  void expect_no_trace() {
    EXPECT_EQ(live_now(), live);
    expect_free_memory_is_idle(stream, nullptr, [&] { run.runner.optimizer().synchronize(); });
    if (run.is_half_updated()) {
      ++refused;
      expect_error(ErrorKind::invalid, {"an update failed", "initialise()"}, [&] { run.step(0); });
      run.initialise();
    }
    EXPECT_TRUE(run.steps_from(0) == wanted);
    EXPECT_EQ(live_now(), live);
    run.initialise();
  }
};

TEST(HomeFailures, OfAnyCopyWaitOrEventLeaveNothingLiveAndTheSameBits) {
  for (const StepForm& form : forms_away()) {
    SCOPED_TRACE(sentence("update ", form.name, ", ", form.config.accumulate, " micro-batches, ",
                          form.plans.step.units_leaving, " leaving"));
    FailingHomes homes(form);
    const int64_t before = homes.stream.calls.counted();
    homes.run.step(0);
    const int64_t calls = homes.stream.calls.counted() - before;
    homes.run.initialise();
    EXPECT_GT(calls, 30);
    const int64_t stride = nightly() ? 1 : size_here(1, 7);
    for (int64_t n = 0; n < calls && !::testing::Test::HasFailure(); n += stride) {
      SCOPED_TRACE(sentence("call ", n, " of ", calls));
      homes.stream.calls.fail_at(n);
      const bool failed = homes.fails();
      homes.stream.calls.fail_at(-1);
      failed ? homes.expect_no_trace() : homes.expect_that_it_ran();
    }
    EXPECT_LT(homes.survived, calls / 8);
    EXPECT_GT(homes.refused, 0);
  }
}

TEST(HomeFailures, OfAnyAllocationLeaveNothingLiveAndTheSameBits) {
  for (const StepForm& form : forms_away()) {
    SCOPED_TRACE(sentence("update ", form.name, ", ", form.config.accumulate, " micro-batches"));
    FailingHomes homes(form);
    std::optional<Lifetimes> lifetimes;
    {
      const AllocationLog log(homes.stream.arena());
      homes.run.step(0);
      lifetimes = log.lifetimes();
    }
    homes.run.initialise();
    const auto count = static_cast<int64_t>(lifetimes->all.size());
    const int64_t stride = nightly() ? 1 : size_here(1, 7);
    for (int64_t at = 0; at < count && !::testing::Test::HasFailure(); at += stride) {
      SCOPED_TRACE(sentence("allocation ", at, " of ", count));
      const std::optional<Layout> layout = layout_of_first(*lifetimes, at);
      {
        const PlacedStep placed(homes.stream.arena(), layout);
        expect_error(ErrorKind::invalid, {"layout: allocation ", "one more"},
                     [&] { homes.run.step(0); });
      }
      homes.expect_no_trace();
    }
    // At the end all is allocated before the update; in backward, sums are there before the first.
    const bool in_backward = form.plans.step.update == UpdateTime::backward;
    if (stride > 1) continue;
    EXPECT_EQ(homes.refused > 0, in_backward && form.config.accumulate == 1);
  }
}

// Gradients find no room there; the state, and parameters, have theirs from the beginning.
TEST(HomeFailures, OfTheHostsMemoryLeaveNothingLive) {
  StepForm form = forms_away()[2];  // sums of three micro-batches
  CpuStream stream(plenty, 2);
  size_t needed = 0;
  {
    SmallRun run(stream, form.config, form.plans);
    const size_t between = run.runner.host_memory().live;
    run.step(0);
    needed = run.runner.host_memory().peak;
    ASSERT_GT(needed, between);
  }
  for (size_t less = HostLink::alignment; less <= 2 * HostLink::alignment;
       less += HostLink::alignment) {
    form.plans.host_bytes = needed - less;
    SmallRun run(stream, form.config, form.plans);
    const size_t live = stream.memory().live, on_host = run.runner.host_memory().live;
    for (int i = 0; i < 2; ++i) {
      expect_error(ErrorKind::memory, {"host: "}, [&] { run.step(0); });
      EXPECT_EQ(stream.memory().live, live);
      EXPECT_EQ(run.runner.host_memory().live, on_host);
    }
  }
}

// Of a model that cannot be made with its homes, nothing refers to them afterwards.
TEST(HomeFailures, OfMakingThemLeaveParametersWithoutHomes) {
  Plan plan;
  SmallModel::place_away(plan);
  CpuStream stream(plenty, 2);
  CallCounter calls;
  SmallModel model(stream, calls, parameters_away(plan));
  const size_t live = stream.memory().live;
  {
    HostLink small(stream, HostLink::alignment);
    expect_error(ErrorKind::memory, {"host: "},
                 [&] { const Homes homes(model.parameters(), small, plan, 1); });
    EXPECT_EQ(small.memory().live, 0u);
  }
  for (const Parameter* p : model.parameters()) EXPECT_TRUE(!p->homes && !p->home) << p->name;
  EXPECT_EQ(stream.memory().live, live);
}

}  // namespace
}  // namespace spool::testing
