#pragma once

// Ranks of emulated NCCL for its tests: processes, each with a GPU.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../virtual_memory.h"
#include "nccl.h"

namespace spool::testing {

// Runs body(rank, ranks' id) in a process for each rank, and returns what each said, or what it
// threw.  One that takes more than 20 s is killed.
using RankBody = std::function<std::string(int rank, ncclUniqueId id)>;

[[noreturn]] inline void be_rank(const RankBody& body, int rank, ncclUniqueId id, int said) {
  ::setenv("EMULATOR_DEVICES", "4", /*overwrite=*/1);
  std::string outcome;
  try {
    outcome = body(rank, id);
  } catch (const std::exception& e) {
    outcome = e.what();
  }
  if (::write(said, outcome.data(), outcome.size()) < 0) ::_exit(1);
  ::_exit(0);
}

inline std::string hear(int from, std::chrono::steady_clock::time_point until) {
  std::string all;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    const auto milliseconds = static_cast<int>(std::max<int64_t>(left.count(), 0));
    pollfd wait{.fd = from, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, milliseconds) <= 0) return all + " (hangs)";
    char text[1000];
    const ssize_t size = ::read(from, text, sizeof text);
    if (size <= 0) return all;
    all.append(text, static_cast<size_t>(size));
  }
}

inline std::vector<std::string> run_on_ranks(int ranks, const RankBody& body) {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<pid_t> processes;
  std::vector<int> said;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2] = {};
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t process = ::fork();
    if (process == 0) be_rank(body, rank, id, ends[1]);
    ::close(ends[1]);
    processes.push_back(process);
    said.push_back(ends[0]);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::vector<std::string> outcomes;
  for (const int from : said) {
    outcomes.push_back(hear(from, until));
    ::close(from);
  }
  for (const pid_t process : processes) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  return outcomes;
}

inline void need(bool is_so, const std::string& what) {
  if (!is_so) throw std::runtime_error(what);
}
inline void need(cudaError_t status) { need(status == cudaSuccess, cudaGetErrorString(status)); }
inline void need(CUresult status) {
  const char* why = nullptr;
  cuGetErrorString(status, &why);
  need(status == CUDA_SUCCESS, why);
}

// What a call came to: an empty text, or why it was refused.
inline std::string outcome_of(ncclComm_t comm, ncclResult_t result) {
  while (result == ncclInProgress) {
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
    if (asked != ncclSuccess) return ncclGetLastError(nullptr);
    if (result == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return result == ncclSuccess ? "" : ncclGetLastError(comm);
}
inline void need(ncclComm_t comm, ncclResult_t result) {
  const std::string why = outcome_of(comm, result);
  need(why.empty(), why);
}

inline ncclConfig_t config_of(bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  return config;
}

// Memory of the current device by cuMemCreate, which lives as long as the process.
inline std::byte* make_memory(size_t bytes) {
  int device = 0;
  need(cudaGetDevice(&device));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  const CUmemAccessDesc access{.location = properties.location,
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  need(cuMemCreate(&handle, bytes, &properties, 0));
  need(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  need(cuMemMap(address, bytes, 0, handle, 0));
  need(cuMemSetAccess(address, bytes, &access, 1));
  return reinterpret_cast<std::byte*>(address);
}

constexpr size_t window_bytes = size_t{4} << 20;

// A rank with a communicator over a window.
struct Rank {
  int rank, ranks;
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
  std::byte* memory = nullptr;
  ncclWindow_t window = nullptr;

  Rank(int own, int all, ncclUniqueId id, bool blocking = false) : rank(own), ranks(all) {
    need(cudaSetDevice(rank));
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ncclConfig_t config = config_of(blocking);
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
    need(comm, begun);
    memory = make_memory(window_bytes);
    add_window();
  }
  void add_window() {
    need(comm,
         ncclCommWindowRegister(comm, memory, window_bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
  }
  float* numbers(size_t offset = 0) const { return reinterpret_cast<float*>(memory + offset); }
  // Both calls give from the window's beginning, and take at its second half.
  float* taken() const { return numbers(window_bytes / 2); }
  ncclResult_t all_to_all(size_t count = 8) const {
    return ncclAlltoAll(memory, taken(), count, ncclFloat32, comm, stream);
  }
  ncclResult_t all_gather(size_t count = 8) const {
    return ncclAllGather(memory, taken(), count, ncclFloat32, comm, stream);
  }
  cudaGraphExec_t capture(const std::function<void()>& work) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work();
    need(cudaStreamEndCapture(stream, &graph));
    need(cudaGraphInstantiate(&made, graph, 0));
    need(cudaGraphDestroy(graph));
    return made;
  }
  void end() {
    need(comm, ncclCommFinalize(comm));
    need(comm, ncclCommDestroy(comm));
  }
};

using Body = std::function<void(Rank&)>;

// Runs the body on two ranks; each says why its last call or its stream was refused.
inline std::vector<std::string> run_pair(const Body& body, bool blocking = false) {
  return run_on_ranks(2, [&](int rank, ncclUniqueId id) -> std::string {
    Rank r(rank, 2, id, blocking);
    body(r);
    return "was not refused";
  });
}

// All say these words.
inline void expect_said(const std::vector<std::string>& all,
                        const std::vector<std::string>& words) {
  for (const std::string& said : all) {
    for (const std::string& word : words) {
      EXPECT_NE(said.find(word), std::string::npos) << "'" << word << "' is not in: " << said;
    }
  }
}

}  // namespace spool::testing
