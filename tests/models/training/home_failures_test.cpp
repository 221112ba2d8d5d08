// runs: threads, night
// A step of gpt2-tiny with everything away, which fails at any of its copies, waits, events and
// allocations: nothing is live afterwards, and the next step has its bits.

#include "spool/models/families/families.h"
#include "spool/models/steps/step_runner.h"
#include "spool/runtime/memory/allocation_log.h"
#include "tests/autograd/failure_testing.h"
#include "tests/models/optimizers/failing_link.h"
#include "tests/models/training/homes_testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{64} << 20;

TrainingConfig config_of(int64_t micro_batches) {
  TrainingConfig config;
  config.model = model_preset("gpt2-tiny")->config;
  config.batch = 1;
  config.seq = 16;
  config.accumulate = micro_batches;
  config.optimizer.clip = 0;
  return config;
}

StepPlans plans_of(const StepDescription& step, UpdateTime update) {
  const Policy away{
      .optimizer_state = OptimizerState::streamed, .parameters_on_device = 0, .update = update};
  return {.step = plan_step(step, away, machine_here()), .host_bytes = plenty};
}

// Steps on a device that fails.
class FailingTraining {
 public:
  FailingTraining(int64_t micro_batches, UpdateTime update)
      : config_(config_of(micro_batches)),
        step_(describe_step(config_)),
        runner_(step_, plans_of(step_, update), stream) {
    runner_.initialise();
    live_ = live_now();
  }

  void initialise() { runner_.initialise(); }
  void run() {
    const TokenBatch batch = made_up_batch(config_, /*step=*/0);
    runner_.run({.number = 0, .learning_rate = 1e-3, .targets = batch.valid}, [&](int64_t micro) {
      runner_.model<TrainedModel>().input().upload(batch, micro * config_.batch);
    });
  }

  // At a call; a wait that fails before memory is freed may be made up for.
  void fail_at(int64_t call) {
    stream.calls.fail_at(call);
    try {
      run();
      initialise();
    } catch (const Error& e) {
      EXPECT_TRUE(contains(e.what(), "a call that is to fail")) << e.what();
      ++failed_;
    }
    stream.calls.fail_at(-1);
  }

  // After a failure.  What is half updated is initialised again.
  void expect_nothing_live() {
    EXPECT_EQ(live_now(), live_);
    expect_free_memory_is_idle(stream, nullptr, [&] { runner_.optimizer().synchronize(); });
    try {
      (void)read_row(runner_.optimizer(), 0, 0);
    } catch (const Error& e) {
      EXPECT_TRUE(contains(e.what(), "an update failed")) << e.what();
      expect_error(ErrorKind::invalid, {"an update failed"}, [&] { run(); });
      ++refused_;
      runner_.initialise();
    }
  }

  // The step, and the bits of a run that never failed.
  void expect_bits_of_a_step() {
    run();
    const StepResult result = runner_.result();
    const StepResult wanted = wanted_result();
    EXPECT_EQ(result.loss, wanted.loss);
    EXPECT_EQ(result.grad_norm, wanted.grad_norm);
    EXPECT_TRUE(state_bytes(runner_.model().parameters(), runner_.optimizer()) == wanted_);
    runner_.initialise();
  }
  int64_t failed() const { return failed_; }
  int64_t refused() const { return refused_; }

  FailingCpuStream stream{plenty, 2};

 private:
  std::vector<size_t> live_now() const {
    return {stream.memory().live, runner_.host_memory().live};
  }

  StepResult wanted_result() {
    CpuStream resident(plenty, 2);
    StepRunner runner(step_, StepPlans{}, resident);
    runner.initialise();
    const TokenBatch batch = made_up_batch(config_, /*step=*/0);
    runner.run({.number = 0, .learning_rate = 1e-3, .targets = batch.valid}, [&](int64_t micro) {
      runner.model<TrainedModel>().input().upload(batch, micro * config_.batch);
    });
    const StepResult result = runner.result();
    wanted_ = state_bytes(runner.model().parameters(), runner.optimizer());
    return result;
  }

  TrainingConfig config_;
  StepDescription step_;
  StepRunner runner_;
  std::vector<size_t> live_;
  Bytes wanted_;
  int64_t failed_ = 0, refused_ = 0;
};

// About `most` of the places where a step can fail, or all of them.
void expect_no_trace_of_failures(int64_t most) {
  for (const UpdateTime update : {UpdateTime::end, UpdateTime::backward}) {
    for (const int64_t micro_batches : {1, 2}) {
      SCOPED_TRACE(sentence("update ", name(update), ", ", micro_batches, " micro-batches"));
      Random random(/*seed=*/46, static_cast<uint64_t>(micro_batches));
      FailingTraining training(micro_batches, update);
      std::optional<Lifetimes> lifetimes;
      const int64_t before = training.stream.calls.counted();
      {
        const AllocationLog log(training.stream.arena());
        training.run();
        lifetimes = log.lifetimes();
      }
      const int64_t calls = training.stream.calls.counted() - before;
      training.initialise();
      const std::vector<int64_t> chosen = some_of(calls, most, random);
      for (const int64_t n : chosen) {
        SCOPED_TRACE(sentence("call ", n, " of ", calls));
        training.fail_at(n);
        training.expect_nothing_live();
        if (::testing::Test::HasFailure()) return;
      }
      training.expect_bits_of_a_step();
      EXPECT_GE(2 * training.failed(), std::ssize(chosen));
      EXPECT_GT(training.refused(), 0);
      const auto count = static_cast<int64_t>(lifetimes->all.size());
      for (const int64_t at : some_of(count, most, random)) {
        SCOPED_TRACE(sentence("allocation ", at, " of ", count));
        const std::optional<Layout> layout = layout_of_first(*lifetimes, at);
        {
          const PlacedStep placed(training.stream.arena(), layout);
          expect_error(ErrorKind::invalid, {"layout: allocation ", "one more"},
                       [&] { training.run(); });
        }
        training.expect_nothing_live();
        if (::testing::Test::HasFailure()) return;
      }
      training.expect_bits_of_a_step();
    }
  }
}

TEST(TrainingHomeFailures, LeaveNothingLiveAndTheSameBits) {
  expect_no_trace_of_failures(/*most=*/size_here(12, 6));
}

TEST(TrainingHomeFailures, SlowAtAnyPlaceLeaveNothingLiveAndTheSameBits) {
  expect_no_trace_of_failures(/*most=*/nightly() ? 1'000'000 : 60);
}

}  // namespace
}  // namespace spool::testing
