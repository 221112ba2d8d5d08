// runs: threads
// Ranks that meet and exchange bytes by sockets, as processes do; here each is a thread, with
// connections of its own.

#include "spool/runtime/ranks/sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/ranks/descriptor.h"
#include "spool/runtime/ranks/timeout.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Ranked = const std::shared_ptr<Communicator>&;

MeetingPlace new_place() {
  static std::atomic<int> count = 0;
  return {.host = "", .port = 0, .job = sentence("test-", ::getpid(), "-", count++)};
}

// The error of each rank's body, "" without one.
std::vector<std::string> errors_of(int size, const std::function<void(Ranked)>& body,
                                   const MeetingPlace& place = new_place()) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::jthread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      errors[static_cast<size_t>(r)] = error_of([&] {
        const auto own = ranks_of_sockets(place, r, size);
        try {
          body(own);
        } catch (const std::exception& e) {
          own->fail(e.what());
          throw;
        }
      });
    });
  }
  threads.clear();
  return errors;
}

void expect_no_errors(int size, const std::function<void(Ranked)>& body) {
  for (const std::string& error : errors_of(size, body)) EXPECT_EQ(error, "");
}

struct SocketRanks : ::testing::Test {
  void TearDown() override { set_rank_timeout(usual_rank_timeout); }
};

TEST_F(SocketRanks, ExchangeMessagesOfAnySize) {
  expect_no_errors(4, [](Ranked ranks) {
    CpuStream queue(size_t{1} << 20, 1);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{300'000}}) {
      std::vector<int> given(4 * count), taken(4 * count, -1);
      for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<int>(i) + ranks->rank();
      Messages out, in;
      for (int r = 0; r < 4; ++r) {
        const size_t at = static_cast<size_t>(r) * count, bytes = count * sizeof(int);
        out.push_back({r, reinterpret_cast<std::byte*>(given.data() + at), bytes});
        in.push_back({r, reinterpret_cast<std::byte*>(taken.data() + at), bytes});
      }
      ranks->exchange({.name = "numbers", .out = out, .in = in}, queue);
      queue.synchronize();
      for (size_t i = 0; i < taken.size(); ++i) {
        const int peer = static_cast<int>(i / count), own = ranks->rank();
        const size_t of_peer = static_cast<size_t>(own) * count + i % count;
        ASSERT_EQ(taken[i], static_cast<int>(of_peer) + peer);
      }
    }
  });
}

TEST_F(SocketRanks, GatherTextsByRank) {
  expect_no_errors(3, [](Ranked ranks) {
    for (int i = 0; i < 20; ++i) {
      const std::string own(static_cast<size_t>(ranks->rank() * i), 'x');
      const std::vector<std::string> all = ranks->gather("texts", own);
      ASSERT_EQ(all[2], std::string(static_cast<size_t>(2 * i), 'x'));
    }
  });
}

TEST_F(SocketRanks, AtDifferentExchangesEnd) {
  const auto errors = errors_of(
      2, [](Ranked ranks) { ranks->gather(ranks->rank() == 0 ? "plan" : "comparison", ""); });
  for (const char* words : {"is at the exchange '", "'plan'", "'comparison'"}) {
    EXPECT_TRUE(contains(errors[0] + errors[1], words)) << errors[0] << errors[1];
  }
}

TEST_F(SocketRanks, OneThatFailsIsHeardByThoseThatWait) {
  const auto errors = errors_of(3, [](Ranked ranks) {
    if (ranks->rank() == 1) fail(ErrorKind::file, "the disk is full");
    ranks->gather("all", "");
  });
  EXPECT_EQ(errors[0], "rank 1: the disk is full");
  EXPECT_EQ(errors[1], "the disk is full");
  EXPECT_EQ(errors[2], "rank 1: the disk is full");
}

TEST_F(SocketRanks, OneWhoseWorkThrowsIsHeard) {
  const MeetingPlace place = new_place();
  std::jthread faulty([&] {
    EXPECT_EQ(error_of([&] {
                const auto own = ranks_of_sockets(place, 1, 2);
                fail(ErrorKind::file, "the disk is full");
              }),
              "the disk is full");
  });
  expect_error(ErrorKind::device, {"rank 1: it ended by an error"},
               [&] { ranks_of_sockets(place, 0, 2)->gather("all", ""); });
}

// Whether each rank is to tell the user.
std::vector<RankLoss> losses_without(int gone, double timeout, bool hangs) {
  std::vector<RankLoss> losses(3, RankLoss::another_tells);
  std::atomic<int> ended = 0;
  set_rank_timeout(timeout);
  errors_of(3, [&](Ranked ranks) {
    ranks->is_doing("step 7");
    ranks->gather("all", "");
    if (ranks->rank() == gone) {
      while (hangs && ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    const auto count_end = [&] { ++ended; };
    CpuStream queue(size_t{1} << 20, 1);
    int number = 0;
    const Message message{gone, reinterpret_cast<std::byte*>(&number), sizeof number};
    try {
      ranks->exchange({.name = "gradients", .in = {message}}, queue);
      queue.synchronize();
    } catch (const RankEnded& e) {
      losses[static_cast<size_t>(ranks->rank())] = e.loss();
      const std::string why = e.what();
      EXPECT_TRUE(contains(why, hangs ? "did not come to the exchange 'gradients' within"
                                      : "disappeared in step 7, at the exchange 'gradients'"))
          << why;
      count_end();
      throw;
    }
    count_end();
  });
  return losses;
}

TEST_F(SocketRanks, TheLowestThatIsLeftTellsWhoDisappeared) {
  constexpr RankLoss silent = RankLoss::another_tells, tells = RankLoss::disappeared;
  EXPECT_EQ(losses_without(0, 60, /*hangs=*/false), (std::vector{silent, tells, silent}));
  EXPECT_EQ(losses_without(2, 60, /*hangs=*/false), (std::vector{tells, silent, silent}));
}

TEST_F(SocketRanks, TheLowestThatIsLeftTellsWhoDidNotCome) {
  constexpr RankLoss silent = RankLoss::another_tells, tells = RankLoss::absent;
  EXPECT_EQ(losses_without(0, 0.2, /*hangs=*/true), (std::vector{silent, tells, silent}));
  EXPECT_EQ(losses_without(1, 0.2, /*hangs=*/true), (std::vector{tells, silent, silent}));
}

TEST_F(SocketRanks, WaitWithoutATimeoutForOneThatWorksLong) {
  set_rank_timeout(0.05);
  expect_no_errors(2, [](Ranked ranks) {
    if (ranks->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ranks->gather("plan", "");
  });
}

TEST_F(SocketRanks, OfSeveralThatFailTheLowestTells) {
  std::atomic<int> told = 0;
  errors_of(3, [&](Ranked ranks) {
    ranks->gather("all", "");
    if (ranks->has_lower_rank_failed()) {
      EXPECT_GT(ranks->rank(), 0);
    } else {
      EXPECT_EQ(ranks->rank(), 0);
      ++told;
    }
    fail(ErrorKind::invalid, "no such data");
  });
  EXPECT_EQ(told, 1);
}

TEST_F(SocketRanks, ThatAreNotAllThereAreNamed) {
  std::string said;
  const MeetingPatience patience{
      .first_word = 0.05, .end = 0.3, .says = [&](const std::string& text) { said = text; }};
  const MeetingPlace place = new_place();
  std::jthread one([&] { error_of([&] { meet(place, 1, 4, "x", patience); }); });
  const std::string why = error_of([&] { meet(place, 0, 4, "x", patience); });
  EXPECT_TRUE(contains(said, "waiting for rank 2, rank 3 at the Unix socket of job")) << said;
  EXPECT_TRUE(contains(why, "rank 2, rank 3 did not come to")) << why;
}

TEST_F(SocketRanks, OneThatIsThereAlreadyOrOfOthersIsRefused) {
  const MeetingPlace place = new_place();
  std::jthread host([&] { EXPECT_EQ(meet(place, 0, 3, "a").at(2), "c"); });
  const auto error = [&](int rank, int size) {
    return error_of([&] { meet(place, rank, size, "b"); });
  };
  EXPECT_TRUE(contains(error(1, 4), "one of 4 ranks, and rank 0 of 3"));
  EXPECT_TRUE(contains(error(5, 3), "there are ranks 0 to 2"));
  EXPECT_TRUE(contains(error(0, 3), "in use by another program"));
  std::atomic<int> refused = 0;
  std::vector<std::jthread> twice;
  for (int i = 0; i < 2; ++i) {
    twice.emplace_back([&] {
      const std::string why = error(1, 3);
      EXPECT_TRUE(why.empty() || contains(why, "it is there already")) << why;
      refused += why.empty() ? 0 : 1;
    });
  }
  while (refused == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  meet(place, 2, 3, "c");
  twice.clear();
  EXPECT_EQ(refused, 1);
}

TEST_F(SocketRanks, StrangersAreDropped) {
  const MeetingPlace place = new_place();
  std::jthread host([&] { EXPECT_EQ(meet(place, 0, 2, "a").at(1), "b"); });
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "spool-" + place.job;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  for (const std::string text : {"GET / HTTP/1.1\r\n", "spool-meeting 0.0 x 1 2 y\n", "\n"}) {
    const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    while (::connect(*socket, reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ASSERT_GT(::send(*socket, text.data(), text.size(), MSG_NOSIGNAL), 0);
  }
  EXPECT_EQ(meet(place, 1, 2, "b").at(0), "a");
}

TEST_F(SocketRanks, OneThatCannotBeginSaysWhyThroughRank0) {
  const MeetingPlace place = new_place();
  std::jthread other([&] {
    const std::string why = error_of([&] { meet(place, 1, 3, "x"); });
    EXPECT_TRUE(contains(why, "rank 0 ended the meeting")) << why;
  });
  std::jthread faulty([&] { EXPECT_TRUE(refuse_to_meet(place, 2, 3, "no such data", 20)); });
  EXPECT_EQ(error_of([&] { meet(place, 0, 3, "x"); }), "rank 2: no such data");
}

// A port that the system gives, and takes back.
int free_port() {
  const Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  const auto at = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(*probe, at, bytes), 0);
  EXPECT_EQ(::getsockname(*probe, at, &bytes), 0);
  return ntohs(address.sin_port);
}

TEST_F(SocketRanks, MeetAtAnAddress) {
  const MeetingPlace place{.host = "127.0.0.1", .port = free_port(), .job = "ranks"};
  const auto errors = errors_of(
      3, [](Ranked ranks) { EXPECT_EQ(ranks->gather("all", "x").size(), 3); }, place);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  expect_error(ErrorKind::invalid, {"nowhere.invalid:7000", "does not know 'nowhere.invalid'"},
               [] { meet({.host = "nowhere.invalid", .port = 7000, .job = "ranks"}, 1, 2, "x"); });
}

}  // namespace
}  // namespace spool::testing
