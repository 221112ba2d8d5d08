// runs: alone
// Each rule that emulated NCCL refuses to see broken, broken.

#include "ranks.h"

namespace spool::testing {
namespace {

// Makes a call, and runs it.
void finish(const Rank& r, ncclResult_t begun) {
  need(r.comm, begun);
  need(cudaStreamSynchronize(r.stream));
}

// What one rank calls, and the other.
void expect_differing(const std::vector<std::string>& words, const Body& first,
                      const Body& second) {
  expect_said(run_pair([&](Rank& r) {
                (r.rank == 0 ? first : second)(r);
                need(cudaStreamSynchronize(r.stream));
              }),
              words);
}

TEST(EmulatedNcclRefuses, CallsThatDifferBetweenRanks) {
  const Body usual = [](Rank& r) { need(r.comm, r.all_to_all()); };
  expect_differing({"call 1 differs", "ncclAlltoAll of 8", "ncclAllGather of 8"}, usual,
                   [](Rank& r) { need(r.comm, r.all_gather()); });
  expect_differing({"ncclAlltoAll of 8", "ncclAlltoAll of 9"}, usual,
                   [](Rank& r) { need(r.comm, r.all_to_all(9)); });
  expect_differing({"type 7", "type 2"}, usual, [](Rank& r) {
    need(r.comm, ncclAlltoAll(r.memory, r.taken(), 8, ncclInt32, r.comm, r.stream));
  });
  expect_differing({"from byte 0", "from byte 64"}, usual, [](Rank& r) {
    need(r.comm, ncclAlltoAll(r.memory + 64, r.taken(), 8, ncclFloat32, r.comm, r.stream));
  });
  expect_differing({"to byte 2097152", "to byte 2097216"}, usual, [](Rank& r) {
    need(r.comm, ncclAlltoAll(r.memory, r.taken() + 16, 8, ncclFloat32, r.comm, r.stream));
  });
  expect_differing({"ncclCommSplit", "ncclAlltoAll"}, usual, [](Rank& r) {
    ncclComm_t made = nullptr;
    need(r.comm, ncclCommSplit(r.comm, 0, 0, &made, nullptr));
  });
}

TEST(EmulatedNcclRefuses, AnotherOrderOverTheCommunicatorsOfADevice) {
  expect_said(run_pair([](Rank& r) {
                Rank other = r;
                need(r.comm, ncclCommSplit(r.comm, 0, r.rank, &other.comm, nullptr));
                other.add_window();
                const Rank& first = r.rank == 0 ? r : other;
                const Rank& second = r.rank == 0 ? other : r;
                need(first.comm, first.all_to_all());
                need(second.comm, second.all_to_all());
                need(cudaStreamSynchronize(r.stream));
              }),
              {"another order", "another communicator"});
}

TEST(EmulatedNcclRefuses, ACallThatIsCapturedOnOneRankOnly) {
  expect_said(run_pair([](Rank& r) {
                if (r.rank == 0) return finish(r, r.all_to_all());
                const auto graph = r.capture([&] { need(r.comm, r.all_to_all()); });
                need(cudaGraphLaunch(graph, r.stream));
                need(cudaStreamSynchronize(r.stream));
              }),
              {"differs", ", captured", "not captured"});
}

// A graph that each rank replays as often as told.
void replay(Rank& r, int times) {
  const auto graph = r.capture([&] { need(r.comm, r.all_to_all()); });
  for (int i = 0; i < times; ++i) need(cudaGraphLaunch(graph, r.stream));
  need(cudaStreamSynchronize(r.stream));
  need(cudaGraphExecDestroy(graph));
}

TEST(EmulatedNcclRefuses, OtherNumbersOfReplays) {
  const auto then_another_call = run_pair([](Rank& r) {
    replay(r, r.rank == 0 ? 3 : 2);
    finish(r, r.all_gather());
  });
  expect_said(then_another_call, {"another number of times"});
  const auto then_the_end = run_pair([](Rank& r) {
    replay(r, r.rank == 0 ? 3 : 2);
    r.end();
  });
  expect_said(then_the_end, {"another number of times"});
}

TEST(EmulatedNcclRefuses, CallsThatOneRankLacks) {
  expect_said(run_pair([](Rank& r) {
                if (r.rank == 0) finish(r, r.all_to_all());
                r.end();
              }),
              {"calls are missing"});
}

TEST(EmulatedNcclRefuses, UseBeforeACallInProgressHasEnded) {
  const std::string why = "is in progress";
  expect_said(run_pair([](Rank& r) {
                need(r.all_to_all() == ncclInProgress, "it is not in progress");
                need(r.comm, r.all_gather());
              }),
              {why});
  expect_said(run_pair([](Rank& r) {  // asking once is not enough, nor is it on another thread
                need(r.all_to_all() == ncclInProgress, "it is not in progress");
                ncclResult_t state = ncclSuccess;
                need(ncclCommGetAsyncError(r.comm, &state) == ncclSuccess, "no state");
                std::thread([&] { ncclCommGetAsyncError(r.comm, &state); }).join();
                need(state == ncclInProgress, "it has ended");
                need(r.comm, ncclCommFinalize(r.comm));
              }),
              {why});
  for (const std::function<ncclResult_t(Rank&)>& use :
       std::vector<std::function<ncclResult_t(Rank&)>>{
           [](Rank& r) { return ncclCommDestroy(r.comm); },
           [](Rank& r) { return ncclCommSplit(r.comm, 0, 0, &r.comm, nullptr); },
           [](Rank& r) { return ncclCommWindowDeregister(r.comm, r.window); },
           [](Rank& r) {
             return ncclCommWindowRegister(r.comm, r.memory, 4096, &r.window,
                                           NCCL_WIN_COLL_SYMMETRIC);
           }}) {
    expect_said(run_pair([&](Rank& r) {
                  ncclWindow_t other = nullptr;
                  need(ncclCommWindowRegister(r.comm, r.memory, 8192, &other,
                                              NCCL_WIN_COLL_SYMMETRIC) == ncclInProgress,
                       "it is not in progress");
                  need(r.comm, use(r));
                }),
                {why});
  }
}

TEST(EmulatedNcclRefuses, ACaptureThatBeginsWhileACallIsInProgress) {
  expect_said(run_pair([](Rank& r) {
                const ncclResult_t begun = r.all_to_all();
                r.capture([&] { need(r.comm, begun); });
              }),
              {"a capture began or ended while"});
}

TEST(EmulatedNcclRefuses, AnyUseButAnAbortOfACommunicatorThatFailed) {
  for (const bool destroys : {true, false}) {
    expect_said(
        run_pair([=](Rank& r) {
          const ncclResult_t begun = r.rank == 0 ? r.all_to_all() : r.all_gather();
          need(!outcome_of(r.comm, begun).empty() || cudaStreamSynchronize(r.stream) != cudaSuccess,
               "two calls that differ");
          ncclResult_t state = ncclSuccess;
          need(ncclCommGetAsyncError(r.comm, &state) == ncclSuccess && state != ncclSuccess,
               "it has not failed");
          const ncclResult_t used = destroys ? ncclCommDestroy(r.comm) : r.all_to_all();
          need(used == ncclSuccess, ncclGetLastError(nullptr));
        }),
        {destroys ? "is aborted, not destroyed" : "failed before"});
  }
}

TEST(EmulatedNcclRefuses, GroupsOfOtherCallsAndNoGroup) {
  const std::string why = "this stand-in groups exchanges";
  expect_said(run_pair([](Rank& r) {
                ncclGroupStart();
                ncclComm_t made = nullptr;
                need(r.comm, ncclCommSplit(r.comm, 0, 0, &made, nullptr));
              }),
              {why});
  expect_said(run_pair([](Rank& r) {
                ncclGroupStart();
                r.add_window();
              }),
              {why});
  expect_said(run_pair([](Rank& r) { need(r.comm, ncclGroupEnd()); }), {"no group was begun"});
}

TEST(EmulatedNcclRefuses, AGraphThatOutlivesItsCommunicator) {
  const auto capture = [](Rank& r) { return r.capture([&] { need(r.comm, r.all_to_all()); }); };
  expect_said(run_pair([&](Rank& r) {
                capture(r);
                need(r.comm, ncclCommDestroy(r.comm));
              }),
              {"a graph outlives its communicator"});
  expect_said(run_pair([&](Rank& r) {
                capture(r);
                need(r.comm, ncclCommFinalize(r.comm));
              }),
              {"a graph outlives its communicator"});
  expect_said(run_pair([&](Rank& r) {
                const auto graph = capture(r);
                need(ncclCommAbort(r.comm) == ncclSuccess, "no abort");
                need(cudaGraphLaunch(graph, r.stream));
                need(cudaStreamSynchronize(r.stream));
              }),
              {"a graph outlives its communicator"});
}

TEST(EmulatedNcclRefuses, ToEndBeforeItsWorkAndUseAfterItsEnd) {
  expect_said(run_pair([](Rank& r) {
                need(r.comm, r.all_to_all());
                need(r.comm, ncclCommFinalize(r.comm));
              }),
              {"still wait on a stream"});
  expect_said(run_pair([](Rank& r) {
                need(r.comm, ncclCommFinalize(r.comm));
                need(r.comm, r.all_to_all());
              }),
              {"was finalized"});
  expect_said(run_pair([](Rank& r) {
                r.end();
                need(r.comm, r.all_to_all());
              }),
              {"one that was destroyed"});
}

TEST(EmulatedNcclRefuses, AnAbortWhileAThreadIsInside) {
  expect_said(run_pair([](Rank& r) {
                std::string why;
                ncclGroupStart();
                need(r.comm, r.all_to_all());
                std::thread([&] {
                  if (ncclCommAbort(r.comm) != ncclSuccess) why = ncclGetLastError(nullptr);
                }).join();
                need(why.empty(), why);
              }),
              {"a thread is inside"});
}

TEST(EmulatedNcclRefuses, AnAbortOfABlockingCommunicator) {
  expect_said(run_pair([](Rank& r) { need(r.comm, ncclCommAbort(r.comm)); }, /*blocking=*/true),
              {"a blocking communicator is not aborted"});
}

// What ranks say whose communicators never begin.
void expect_no_communicator(
    const std::vector<std::string>& words,
    const std::function<void(int rank, ncclConfig_t&, int& ranks, int& as)>& change,
    bool all = true) {
  auto said = run_on_ranks(2, [&](int rank, ncclUniqueId id) -> std::string {
    need(cudaSetDevice(rank));
    ncclConfig_t config = config_of(/*blocking=*/false);
    int ranks = 2, as = rank;
    change(rank, config, ranks, as);
    ncclComm_t comm = nullptr;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, ranks, id, as, &config);
    if (begun == ncclInProgress && !all) return words.front();  // waits for the other
    return outcome_of(comm, begun);
  });
  expect_said(said, words);
}

TEST(EmulatedNcclRefuses, AConfigurationThatIsNotInitialised) {
  expect_no_communicator({"NCCL_CONFIG_INITIALIZER"}, [](int, ncclConfig_t& config, int&, int&) {
    config = {};
    config.blocking = 0;
  });
  expect_no_communicator({"NCCL_CONFIG_INITIALIZER"},
                         [](int, ncclConfig_t& config, int&, int&) { config.size -= 8; });
  expect_said(run_pair([](Rank& r) {
                ncclConfig_t none = {};
                ncclComm_t made = nullptr;
                need(r.comm, ncclCommSplit(r.comm, 0, 0, &made, &none));
              }),
              {"NCCL_CONFIG_INITIALIZER"});
  expect_no_communicator({"is 0 or 1"},
                         [](int, ncclConfig_t& config, int&, int&) { config.blocking = 7; });
}

TEST(EmulatedNcclRefuses, TwoRanksOnOneDevice) {
  expect_no_communicator({"duplicate GPU: ranks 0 and 1 both have GPU 0"},
                         [](int, ncclConfig_t&, int&, int&) { need(cudaSetDevice(0)); });
}

TEST(EmulatedNcclRefuses, RanksThatDoNotFitTogether) {
  const auto say_two = [](int, ncclConfig_t&, int&, int& as) { as = 1; };
  expect_no_communicator({"two say that they are rank 1"}, say_two, /*all=*/false);
  const auto say_three = [](int rank, ncclConfig_t&, int& ranks, int&) { ranks = 2 + rank; };
  expect_no_communicator({"ranks, and another "}, say_three, /*all=*/false);
  expect_no_communicator({"there is no rank"}, [](int, ncclConfig_t&, int&, int& as) { as = 2; });
}

TEST(EmulatedNcclRefuses, AnIdThatIsNone) {
  ncclConfig_t config = config_of(/*blocking=*/false);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, ncclUniqueId{}, 0, &config), ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("unique id"), std::string::npos);
}

}  // namespace
}  // namespace spool::testing
