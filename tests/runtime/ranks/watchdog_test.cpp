// runs: alone
// A process of which ranks lose one ends, whatever it is stuck in.

#include "spool/runtime/ranks/watchdog.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "spool/runtime/log.h"
#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/trace.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

[[noreturn]] void sleep_for_ever() {
  for (;;) sleep_for(1);
}

std::exception_ptr lost(RankLoss loss) {
  return std::make_exception_ptr(RankEnded("rank 2 disappeared", loss));
}

// Looks that find an error at the first.
Watchdog::Work work(
    const std::exception_ptr& error, std::function<void()> abort = [] {}) {
  return {.look = [error](double) { std::rethrow_exception(error); },
          .abort = std::move(abort),
          .say = [](const std::exception_ptr& e) { say_last_words(/*rank=*/1, e); }};
}

TEST(Watchdog, AbortsOnceAndThrowsTheFirstError) {
  std::atomic<int> aborts = 0;
  std::string told;
  {
    Watchdog dog(work(lost(RankLoss::disappeared), [&] { ++aborts; }));
    dog.at_end([&](std::exception_ptr e) { told = error_of([&] { std::rethrow_exception(e); }); });
    while (!dog.has_ended()) sleep_for(0.01);
    dog.end(std::make_exception_ptr(Error(ErrorKind::device, "another")));  // waits for the abort
    EXPECT_EQ(aborts, 1);
    EXPECT_EQ(error_of([&] { dog.rethrow(); }), "rank 2 disappeared");
    EXPECT_EQ(told, "rank 2 disappeared");
  }
  EXPECT_EQ(aborts, 1);
}

TEST(Watchdog, LooksAllTheTimeUntilItIsToldToStop) {
  std::atomic<int> looks = 0;
  Watchdog dog({.look =
                    [&](double passed) {
                      EXPECT_LE(passed, 0.2);
                      ++looks;
                    },
                .abort = [] { ADD_FAILURE(); },
                .say = [](const std::exception_ptr&) {}});
  while (looks < 3) sleep_for(0.01);
  dog.stop_looking();
  const int before = looks;
  sleep_for(0.3);
  EXPECT_EQ(looks, before);
  dog.rethrow();
}

// Ends this process with the exit code 2 if that took longer than it may.
template <class Work>
void be_stuck(const Work& work) {
  set_logger(spdlog::stderr_logger_mt("ranks"));
  logger().set_pattern("%v");
  const double begin = host_clock();
  std::thread([begin] {
    while (host_clock() - begin < Watchdog::patience + 17) sleep_for(0.05);
    std::_Exit(2);
  }).detach();
  work();
}

TEST(Watchdog, EndsTheProcessWhereTheHostIsStuck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stuck = [] {
    be_stuck([] {
      const Watchdog dog(work(lost(RankLoss::disappeared)));
      sleep_for_ever();
    });
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(1), "^rank 2 disappeared\n$");
}

TEST(Watchdog, EndsTheProcessWhereTheAbortIsStuck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stuck = [] {
    be_stuck([] {
      Watchdog dog(work(lost(RankLoss::absent), sleep_for_ever));
      dog.end(lost(RankLoss::disappeared));
    });
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(1), "^rank 2 disappeared\n$");
}

TEST(Watchdog, LetsAnotherRankTellWhatThatOneTells) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stuck = [] {
    be_stuck([] {
      const Watchdog dog(work(lost(RankLoss::another_tells), sleep_for_ever));
      sleep_for_ever();
    });
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(1), "^$");
}

TEST(Watchdog, EndsTheProcessThoughItsLastWordsAreStuck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stuck = [] {
    be_stuck([] {
      set_last_words([](int, const std::exception_ptr&) { sleep_for_ever(); });
      const Watchdog dog(work(lost(RankLoss::disappeared)));
      sleep_for_ever();
    });
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(1), "");
}

TEST(Deadline, IsNoneOnceItIsDestroyed) {
  {
    const Deadline deadline(/*seconds=*/0.2, [] { ADD_FAILURE(); });
  }
  sleep_for(0.5);
}

}  // namespace
}  // namespace spool::testing
