// runs: threads
// Ranks that are threads exchange bytes; one that does otherwise than the others, or does not come,
// ends them all with an error that says so.

#include <chrono>
#include <thread>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/ranks/timeout.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Ranked = const std::shared_ptr<Communicator>&;

std::byte* bytes_of(std::vector<int>& numbers) {
  return reinterpret_cast<std::byte*>(numbers.data());
}

// Each rank gives each one, itself too, so many numbers, and takes theirs.
void exchange_numbers(Communicator& ranks, Stream& queue, size_t count) {
  const auto size = static_cast<size_t>(ranks.size());
  std::vector<int> given(count * size), taken(count * size, -1);
  for (size_t i = 0; i < given.size(); ++i) given[i] = 1000 * ranks.rank() + static_cast<int>(i);
  Messages out, in;
  for (size_t r = 0; r < size; ++r) {
    const size_t begin = r * count * sizeof(int), bytes = count * sizeof(int);
    out.push_back({static_cast<int>(r), bytes_of(given) + begin, bytes});
    in.push_back({static_cast<int>(r), bytes_of(taken) + begin, bytes});
  }
  ranks.exchange({.name = "numbers", .out = out, .in = in}, queue);
  queue.synchronize();
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(ranks.rank()) * count + i;
      ASSERT_EQ(taken[r * count + i], 1000 * static_cast<int>(r) + static_cast<int>(at));
    }
  }
}

TEST(ThreadRanks, ExchangeMessagesOfAnySize) {
  for (const int size : {1, 2, 3, 5}) {
    run_ranks(size, [&](Ranked ranks) {
      CpuStream queue(size_t{1} << 20, 1);
      for (const size_t count : {0, 1, 7, 10'000}) exchange_numbers(*ranks, queue, count);
      const auto others = static_cast<size_t>(size - 1);
      EXPECT_EQ(ranks->sent(), others * 10'008 * sizeof(int));
    });
  }
}

TEST(ThreadRanks, HaveEqualHashesOfEqualExchanges) {
  const std::vector<std::shared_ptr<Communicator>> all = ranks_of_threads(2);
  std::vector<uint64_t> lists(2);
  run_ranks(2, [&](Ranked ranks) {
    CpuStream queue(size_t{1} << 20, 1);
    exchange_numbers(*ranks, queue, 3);
    lists[static_cast<size_t>(ranks->rank())] = ranks->list();
  });
  EXPECT_EQ(lists[0], lists[1]);
  EXPECT_NE(lists[0], all[0]->list());
}

TEST(ThreadRanks, GatherTextsByRank) {
  run_ranks(3, [&](Ranked ranks) {
    const std::string own(static_cast<size_t>(ranks->rank()), 'x');
    EXPECT_EQ(ranks->gather("texts", own), (std::vector<std::string>{"", "x", "xx"}));
  });
}

TEST(ThreadRanks, AtDifferentExchangesEnd) {
  expect_error(ErrorKind::invalid, {"is at the exchange '", "gradients", "parameters"}, [] {
    run_ranks(2, [](Ranked ranks) {
      ranks->move_now(ranks->rank() == 0 ? "gradients" : "parameters", {{1 - ranks->rank()}},
                      {{1 - ranks->rank()}});
    });
  });
}

TEST(ThreadRanks, ThatGiveOtherMessagesThanAreTakenEnd) {
  expect_error(ErrorKind::invalid, {"gives rank", "other messages than that one takes"}, [] {
    run_ranks(2, [](Ranked ranks) {
      std::vector<int> numbers(4);
      const auto bytes = 4 * static_cast<size_t>(1 + ranks->rank());
      const int peer = 1 - ranks->rank();
      ranks->move_now("numbers", {{peer, bytes_of(numbers), bytes}},
                      {{peer, bytes_of(numbers), bytes}});
    });
  });
}

TEST(ThreadRanks, OneThatThrowsEndsThoseThatWait) {
  expect_error(ErrorKind::file, {"rank 1: the disk is full"}, [] {
    run_ranks(3, [](Ranked ranks) {
      if (ranks->rank() == 1) fail(ErrorKind::file, "the disk is full");
      ranks->gather("all", "");
    });
  });
}

TEST(ThreadRanks, ThatAllThrowTheSameSayItOnceAsRank0) {
  const std::string said =
      error_of([] { run_ranks(3, [](Ranked) { fail(ErrorKind::invalid, "no such data"); }); });
  EXPECT_EQ(said, "no such data");
}

TEST(ThreadRanks, OneThatDoesNotComeIsNamed) {
  set_rank_timeout(0.05);
  expect_error(ErrorKind::device, {"rank 1, rank 2 did not come to the exchange 'gradients'"}, [] {
    const auto all = ranks_of_threads(3);
    CpuStream queue(size_t{1} << 20, 1);
    all[0]->exchange({.name = "gradients"}, queue);
    queue.synchronize();
  });
  set_rank_timeout(usual_rank_timeout);
}

TEST(ThreadRanks, WaitOnTheHostForOneThatWorksLong) {
  set_rank_timeout(0.01);
  run_ranks(2, [](Ranked ranks) {
    if (ranks->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks->gather("planned", "");
  });
  set_rank_timeout(usual_rank_timeout);
}

TEST(ThreadRanks, ThatGiveMoreMessagesThanAreTakenEnd) {
  expect_error(ErrorKind::invalid, {"more messages than that one takes"}, [] {
    run_ranks(2, [](Ranked ranks) {
      std::vector<int> number(1);
      const int peer = 1 - ranks->rank();
      ranks->move_now("numbers", {{peer, bytes_of(number), sizeof(int)}}, {});
    });
  });
}

TEST(ThreadRanks, AreAtLeastOne) {
  expect_error(ErrorKind::invalid, {"at least one rank, not 0"},
               [] { run_ranks(0, [](Ranked) {}); });
}

}  // namespace
}  // namespace spool::testing
