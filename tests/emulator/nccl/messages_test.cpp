// runs: alone
// Emulated NCCL moves messages between some of the ranks, and refuses those that do not fit.

#include "ranks.h"

namespace spool::testing {
namespace {

// Rank a gives rank b so many numbers, in two messages.
size_t numbers_of(int a, int b) { return static_cast<size_t>(10 + 3 * a + b); }

float number(int a, int b, int round, size_t i) {
  return static_cast<float>(round * 1'000'000 + a * 100'000 + b * 10'000) + static_cast<float>(i);
}

size_t place_of(int peer) { return static_cast<size_t>(peer) * 1000; }

void fill(const Rank& r, int round) {
  for (int peer = 0; peer < r.ranks; ++peer) {
    float* const to = r.numbers() + place_of(peer);
    for (size_t i = 0; i < numbers_of(r.rank, peer); ++i) to[i] = number(r.rank, peer, round, i);
  }
}

ncclResult_t send(const Rank& r, int peer, size_t first, size_t count) {
  return ncclSend(r.numbers() + place_of(peer) + first, count, ncclFloat32, peer, r.comm, r.stream);
}

ncclResult_t receive(const Rank& r, int peer, size_t first, size_t count) {
  return ncclRecv(r.taken() + place_of(peer) + first, count, ncclFloat32, peer, r.comm, r.stream);
}

void exchange_with(const Rank& r, const std::vector<int>& peers) {
  need(ncclGroupStart() == ncclSuccess, "a group");
  for (const int p : peers) {
    need(send(r, p, 0, 4) == ncclSuccess, "the first message");
    need(receive(r, p, 0, 4) == ncclSuccess, "the first one taken");
    need(send(r, p, 4, numbers_of(r.rank, p) - 4) == ncclSuccess, "the second message");
    need(receive(r, p, 4, numbers_of(p, r.rank) - 4) == ncclSuccess, "the second one taken");
  }
  need(r.comm, ncclGroupEnd());
}

void expect_taken(const Rank& r, const std::vector<int>& peers, int round) {
  for (const int p : peers) {
    for (size_t i = 0; i < numbers_of(p, r.rank); ++i) {
      need(r.taken()[place_of(p) + i] == number(p, r.rank, round, i), "another number was taken");
    }
  }
}

std::vector<int> others(const Rank& r) {
  std::vector<int> all;
  for (int p = 0; p < r.ranks; ++p) {
    if (p != r.rank) all.push_back(p);
  }
  return all;
}

TEST(EmulatedNcclMessages, ArriveOnStreamsAndInGraphs) {
  const auto said = run_on_ranks(4, [](int rank, ncclUniqueId id) -> std::string {
    Rank r(rank, 4, id);
    const std::vector<int> one{rank ^ 2}, all = others(r);
    const cudaGraphExec_t graph = r.capture([&] { exchange_with(r, one); });
    for (int round = 1; round < 4; ++round) {
      fill(r, round);
      need(cudaGraphLaunch(graph, r.stream));
      need(cudaStreamSynchronize(r.stream));
      expect_taken(r, one, round);
      fill(r, -round);
      exchange_with(r, all);
      need(cudaStreamSynchronize(r.stream));
      expect_taken(r, all, -round);
    }
    need(cudaGraphExecDestroy(graph));
    r.end();
    return "";
  });
  EXPECT_EQ(said, std::vector<std::string>(4));
}

TEST(EmulatedNcclMessages, GoBetweenTwoRanksWhileOthersWork) {
  const auto said = run_on_ranks(3, [](int rank, ncclUniqueId id) -> std::string {
    Rank r(rank, 3, id);
    fill(r, 1);
    if (rank < 2) {
      exchange_with(r, {1 - rank});
      need(cudaStreamSynchronize(r.stream));
      expect_taken(r, {1 - rank}, 1);
    }
    exchange_with(r, others(r));
    need(r.comm, r.all_gather());
    need(cudaStreamSynchronize(r.stream));
    r.end();
    return "";
  });
  EXPECT_EQ(said, std::vector<std::string>(3));
}

TEST(EmulatedNcclMessages, AreRefusedOutsideOfAGroupOrToNoOther) {
  expect_said(run_pair([](Rank& r) { need(r.comm, send(r, 1 - r.rank, 0, 4)); }),
              {"ncclSend outside of a group"});
  for (const int peer : {0, 7}) {
    const auto said = run_on_ranks(1, [=](int rank, ncclUniqueId id) -> std::string {
      Rank r(rank, 1, id);
      need(ncclGroupStart() == ncclSuccess, "a group");
      need(send(r, peer, 0, 4) == ncclSuccess, "a message");
      return outcome_of(r.comm, ncclGroupEnd());
    });
    expect_said(said, {"ncclSend on rank 0 of 1 names rank"});
  }
}

TEST(EmulatedNcclMessages, AreRefusedBesideOtherCalls) {
  expect_said(run_pair([](Rank& r) {
                need(ncclGroupStart() == ncclSuccess, "a group");
                need(send(r, 1 - r.rank, 0, 4) == ncclSuccess, "a message");
                need(r.all_to_all() == ncclSuccess, "a call of all");
                need(r.comm, ncclGroupEnd());
              }),
              {"in one group"});
}

TEST(EmulatedNcclMessages, ThatNobodyTakesAreRefused) {
  const auto said = run_pair([](Rank& r) {
    if (r.rank == 0) {
      need(ncclGroupStart() == ncclSuccess, "a group");
      need(send(r, 1, 0, 4) == ncclSuccess, "a message");
      need(r.comm, ncclGroupEnd());
      need(cudaStreamSynchronize(r.stream));
    }
    need(r.comm, ncclCommFinalize(r.comm));
  });
  expect_said({said[0]}, {"rank 1 ended its communicator"});
}

TEST(EmulatedNcclMessages, OfOtherSizesThanAreTakenAreRefused) {
  const auto said = run_pair([](Rank& r) {
    need(ncclGroupStart() == ncclSuccess, "a group");
    need(send(r, 1 - r.rank, 0, 4) == ncclSuccess, "a message");
    need(receive(r, 1 - r.rank, 0, 4 + static_cast<size_t>(r.rank)) == ncclSuccess, "one taken");
    need(r.comm, ncclGroupEnd());
    need(cudaStreamSynchronize(r.stream));
    need(r.comm, ncclCommFinalize(r.comm));
  });
  expect_said(said, {"sends 1 messages to rank 1", "sizes differ"});
}

}  // namespace
}  // namespace spool::testing
