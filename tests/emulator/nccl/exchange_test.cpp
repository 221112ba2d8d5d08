// runs: alone
// Emulated NCCL moves the right bytes between processes, and only as far as it was asked to.

#include <dlfcn.h>

#include <cmath>

#include "counts.h"
#include "ranks.h"

namespace spool::testing {
namespace {

constexpr size_t count = 1000;
constexpr int most_ranks = 4;

using Outcomes = std::vector<std::string>;

Outcomes nothing_said(int ranks) { return Outcomes(static_cast<size_t>(ranks)); }

// What `from` gives `to` in a round.
float number(int from, int to, int round, size_t i) {
  return static_cast<float>(round * 1'000'000 + from * 100'000 + to * 10'000) +
         static_cast<float>(i);
}

// Numbers of each rank for each.
void fill(const Rank& r, int round) {
  for (int to = 0; to < r.ranks; ++to) {
    for (size_t i = 0; i < count; ++i) {
      r.numbers()[static_cast<size_t>(to) * count + i] = number(r.rank, to, round, i);
    }
  }
}

void expect_taken(const Rank& r, const float* taken, bool gathered, int round) {
  for (int from = 0; from < r.ranks; ++from) {
    for (size_t i = 0; i < count; ++i) {
      const float got = taken[static_cast<size_t>(from) * count + i];
      need(got == number(from, gathered ? 0 : r.rank, round, i),
           "rank " + std::to_string(r.rank) + " took " + std::to_string(got) + " from " +
               std::to_string(from));
    }
  }
}

void exchange_both(Rank& r, int round) {
  fill(r, round);
  need(r.comm, r.all_to_all(count));
  need(cudaStreamSynchronize(r.stream));
  expect_taken(r, r.taken(), /*gathered=*/false, round);
  need(r.comm, r.all_gather(count));
  need(cudaStreamSynchronize(r.stream));
  expect_taken(r, r.taken(), /*gathered=*/true, round);
  float* const own = r.taken() + count * static_cast<size_t>(r.rank);  // in place
  std::copy_n(r.numbers(), count, own);
  need(r.comm, ncclAllGather(own, r.taken(), count, ncclFloat32, r.comm, r.stream));
  need(cudaStreamSynchronize(r.stream));
  expect_taken(r, r.taken(), /*gathered=*/true, round);
}

void replay_both(Rank& r) {
  float* const gathered = r.taken() + window_bytes / 4 / sizeof(float);
  const cudaGraphExec_t graph = r.capture([&] {
    need(r.comm, r.all_to_all(count));
    need(r.comm, ncclAllGather(r.memory, gathered, count, ncclFloat32, r.comm, r.stream));
  });
  for (int round = 0; round < 3; ++round) {
    fill(r, round);
    need(cudaGraphLaunch(graph, r.stream));
    need(cudaStreamSynchronize(r.stream));
    expect_taken(r, r.taken(), /*gathered=*/false, round);
    expect_taken(r, gathered, /*gathered=*/true, round);
  }
  need(cudaGraphExecDestroy(graph));
}

TEST(EmulatedNccl, MovesTheRightBytes) {
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    for (const bool blocking : {false, true}) {
      EXPECT_EQ(run_on_ranks(ranks,
                             [=](int rank, ncclUniqueId id) -> std::string {
                               Rank r(rank, ranks, id, blocking);
                               exchange_both(r, 1);
                               replay_both(r);
                               exchange_both(r, 2);
                               const auto counts = emulator::nccl::counts();
                               need(counts.exchanges == 12 && counts.by_copy_engines == 12,
                                    "exchanges are not counted");
                               r.end();
                               return "";
                             }),
                nothing_said(ranks))
          << ranks << (blocking ? " blocking" : " not blocking");
    }
  }
}

TEST(EmulatedNccl, WorksAsLateAsTheStream) {
  EXPECT_EQ(run_on_ranks(2,
                         [](int rank, ncclUniqueId id) -> std::string {
                           Rank r(rank, 2, id);
                           fill(r, 1);
                           *r.taken() = 5;
                           need(r.comm, r.all_to_all(count));
                           need(*r.taken() == 5, "the exchange ran before the host waited");
                           fill(r, 2);  // too early
                           need(cudaStreamSynchronize(r.stream));
                           expect_taken(r, r.taken(), /*gathered=*/false, 2);
                           r.end();
                           return "";
                         }),
            nothing_said(2));
}

TEST(EmulatedNccl, MovesBytesOfAGroupOfCallsAndOfPartsOfTheRanks) {
  EXPECT_EQ(run_on_ranks(
                4,
                [](int rank, ncclUniqueId id) -> std::string {
                  Rank whole(rank, 4, id), half = whole;
                  need(whole.comm, ncclCommSplit(whole.comm, rank % 2, -rank, &half.comm, nullptr));
                  half.rank = rank < 2;  // by their keys
                  half.ranks = 2;
                  half.add_window();
                  fill(half, 3);
                  need(ncclGroupStart() == ncclSuccess, "a group");
                  need(half.comm, half.all_to_all(count));
                  need(half.comm, ncclAllGather(half.memory, half.taken() + 2 * count, count,
                                                ncclFloat32, half.comm, half.stream));
                  need(half.comm, ncclGroupEnd());
                  need(cudaStreamSynchronize(half.stream));
                  expect_taken(half, half.taken(), /*gathered=*/false, 3);
                  expect_taken(half, half.taken() + 2 * count, /*gathered=*/true, 3);
                  half.end();
                  ncclComm_t none = half.comm;
                  need(whole.comm, ncclCommSplit(whole.comm, rank == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0,
                                                 &none, nullptr));
                  need((none != nullptr) == (rank == 0), "a rank of no color has a communicator");
                  exchange_both(whole, 4);
                  return "";
                }),
            nothing_said(4));
}

TEST(EmulatedNccl, TakesDeviceMemoryWhileACommunicatorLives) {
  EXPECT_EQ(run_on_ranks(1,
                         [](int, ncclUniqueId id) -> std::string {
                           const auto used = [] { return emulator::used_bytes(0); };
                           Rank r(0, 1, id);
                           const size_t with = used();
                           r.end();
                           return std::to_string((with - used()) >> 20);
                         }),
            Outcomes{"4"});
}

// Rank 0 waits until it aborts; what it took is NaN.
std::string wait_and_abort(Rank& r, ncclResult_t state_before) {
  need(r.comm, r.all_to_all(count));
  std::string said;
  std::thread watchdog([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ncclResult_t state = ncclInternalError;
    if (ncclCommGetAsyncError(r.comm, &state) != ncclSuccess || state != state_before) {
      said += "state " + std::to_string(state);
    }
    if (ncclCommAbort(r.comm) != ncclSuccess) said += ncclGetLastError(nullptr);
  });
  const cudaError_t status = cudaStreamSynchronize(r.stream);
  watchdog.join();
  need(status);
  for (size_t i = 0; i < 2 * count; ++i) {
    need(std::isnan(r.taken()[i]), "what nobody sent is not NaN");
  }
  ncclResult_t state;
  need(ncclCommGetAsyncError(r.comm, &state) == ncclInvalidArgument, "an aborted one is used");
  return said;
}

TEST(EmulatedNccl, WaitsForARankThatDiedUntilItIsAborted) {
  const Outcomes all = run_on_ranks(2, [](int rank, ncclUniqueId id) -> std::string {
    Rank r(rank, 2, id);
    if (rank == 1) ::_exit(0);
    fill(r, 1);
    return wait_and_abort(r, ncclSuccess);
  });
  EXPECT_EQ(all, nothing_said(2));
}

TEST(EmulatedNccl, IsAbortedWhileItWaitsForARankThatNeverCame) {
  const Outcomes all = run_on_ranks(2, [](int rank, ncclUniqueId id) -> std::string {
    if (rank == 1) return "";
    ncclConfig_t config = config_of(/*blocking=*/false);
    ncclComm_t comm = nullptr;
    need(ncclCommInitRankConfig(&comm, 2, id, rank, &config) == ncclInProgress, "no progress");
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 10; ++i) {
      need(ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress, "came");
    }
    need(ncclCommAbort(comm) == ncclSuccess, "no abort");
    return "";
  });
  EXPECT_EQ(all, nothing_said(2));
}

TEST(EmulatedNccl, FailsWhereTheEnvironmentSays) {
  const Outcomes all = run_on_ranks(2, [](int rank, ncclUniqueId id) -> std::string {
    if (rank == 0) ::setenv("EMULATOR_NCCL_FAILS_AT", "4", 1);
    Rank r(rank, 2, id);
    exchange_both(r, 1);
    return wait_and_abort(r, rank == 0 ? ncclRemoteError : ncclSuccess);
  });
  EXPECT_EQ(all, nothing_said(2));
}

TEST(EmulatedNccl, NeedsNoWindowsWhereTheEnvironmentRefusesThem) {
  const Outcomes all = run_on_ranks(2, [](int rank, ncclUniqueId id) -> std::string {
    Rank r(rank, 2, id);
    r.end();
    return "";
  });
  EXPECT_EQ(all, nothing_said(2));
  const Outcomes refused = run_on_ranks(2, [](int rank, ncclUniqueId id) -> std::string {
    ::setenv("EMULATOR_NCCL", "no_windows", 1);
    need(cudaSetDevice(rank));
    ncclConfig_t config = config_of(/*blocking=*/false);
    ncclComm_t comm = nullptr;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
    need(comm, begun);
    ncclWindow_t window = nullptr;
    std::byte* const memory = make_memory(window_bytes);
    need(ncclCommWindowRegister(comm, memory, window_bytes, &window, NCCL_WIN_COLL_SYMMETRIC) ==
                 ncclSuccess &&
             window == nullptr,
         "a window");
    cudaStream_t stream = nullptr;
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *memory = std::byte(rank + 1);
    need(comm, ncclAllGather(memory, memory + 1024, 16, ncclInt8, comm, stream));
    need(cudaStreamSynchronize(stream));
    const bool right = memory[1024] == std::byte(1) && memory[1024 + 16] == std::byte(2);
    return right && emulator::nccl::counts().by_copy_engines == 0 ? "" : "wrong";
  });
  EXPECT_EQ(refused, nothing_said(2));
}

TEST(EmulatedNccl, IsFoundInTheProgram) {
  void* const program = ::dlopen(nullptr, RTLD_NOW);
  for (const char* name :
       {"ncclGetVersion", "ncclGetUniqueId", "ncclGetErrorString", "ncclGetLastError",
        "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommGetAsyncError", "ncclCommFinalize",
        "ncclCommDestroy", "ncclCommAbort", "ncclCommWindowRegister", "ncclCommWindowDeregister",
        "ncclGroupStart", "ncclGroupEnd", "ncclAlltoAll", "ncclAllGather", "ncclSend",
        "ncclRecv"}) {
    EXPECT_NE(::dlsym(program, name), nullptr) << name;
  }
  ::dlclose(program);
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

}  // namespace
}  // namespace spool::testing
