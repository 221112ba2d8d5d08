#include "tests/runtime/nccl/one_rank.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "spool/runtime/cuda/arena_memory.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/handles.cuh"
#include "spool/runtime/cuda/nccl_functions.cuh"
#include "spool/runtime/cuda/stream.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/tensor.h"
#include "spool/runtime/trace.h"

namespace spool::testing {
namespace {

using cuda::nccl;

constexpr size_t piece_bytes = size_t{1} << 20, arena_bytes = 3 * piece_bytes;

size_t free_bytes(int device) { return cuda_device(device).free_bytes; }

void need(bool is_there, const char* why) {
  if (!is_there) throw LeftOut(why);
}

// Holds the device until the host says otherwise.
__global__ void wait_for_host(const int* go) {
  const volatile int* const now = go;
  while (*now == 0) {
  }
}

}  // namespace

// A communicator of one rank, the memory that it exchanges, and a graph.
class OneRank::Group {
 public:
  explicit Group(int device) : device_(device) {
    ncclUniqueId id{};
    wait(nccl().GetUniqueId(&id), "ncclGetUniqueId");
    ncclConfig_t config = cuda::config_of_ranks();
    wait(nccl().CommInitRankConfig(&comm_, 1, id, 0, &config), "ncclCommInitRankConfig");
  }
  ~Group() {
    graph_ = {};
    bytes_ = {};
    stream_.reset();
    if (comm_) (void)nccl().CommAbort(comm_);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  CudaStream& stream() const {
    need(stream_ != nullptr, "there is no arena");
    return *stream_;
  }
  std::byte* given() const {
    need(static_cast<bool>(bytes_), "there is no arena");
    return bytes_.view().data();
  }
  std::byte* taken() const { return given() + piece_bytes; }
  std::byte* gathered() const { return taken() + piece_bytes; }

  void open_arena() {
    stream_ = std::make_unique<CudaStream>(device_, arena_bytes);
    const std::string why_not = cuda::arena_memory(*stream_).why_not_shared();
    check(why_not.empty(), why_not);
    bytes_ = Tensor({{static_cast<int64_t>(arena_bytes)}, DType::i8}, *stream_);
  }

  void add_window() {
    const cuda::ArenaMemory& memory = cuda::arena_memory(stream());
    wait(nccl().CommWindowRegister(comm_, memory.data(), memory.reserved(), &window_,
                                   NCCL_WIN_COLL_SYMMETRIC),
         "ncclCommWindowRegister");
  }
  bool has_window() const { return window_ != nullptr; }

  // Both calls, as training has them.
  void exchange() {
    auto* const native = static_cast<cudaStream_t>(stream().native());
    stream().enqueue("exchange", [&] {
      wait(nccl().AlltoAll(given(), taken(), piece_bytes, ncclUint8, comm_, native),
           "ncclAlltoAll");
      wait(nccl().AllGather(given(), gathered(), piece_bytes, ncclUint8, comm_, native),
           "ncclAllGather");
    });
  }

  // Exchanges bytes of a round, which are others than those of the last, by work(), and checks what
  // came; returns the seconds.
  template <class Work>
  double round(int number, const Work& work) {
    const std::vector<std::byte> bytes(piece_bytes, std::byte(number % 255 + 1));
    stream().upload(given(), bytes.data(), piece_bytes);
    stream().synchronize();
    const double begin = host_clock();
    work();
    stream().synchronize();
    const double seconds = host_clock() - begin;
    std::vector<std::byte> came(piece_bytes);
    for (const std::byte* from : {taken(), gathered()}) {
      stream().download(came.data(), from, piece_bytes);
      const auto differing = std::mismatch(came.begin(), came.end(), bytes.begin()).first;
      check(differing == came.end(), from == taken() ? "ncclAlltoAll" : "ncclAllGather",
            " brought another byte at ", differing - came.begin(), " in round ", number);
    }
    return seconds;
  }

  void capture() {
    graph_ = stream().capture([&] { exchange(); });
  }
  void replay() {
    need(static_cast<bool>(graph_), "nothing was captured");
    stream().replay(graph_);
  }

  // The graph ends before the window, the window before the communicator.
  void end() {
    graph_ = {};
    if (window_) {
      wait(nccl().CommWindowDeregister(comm_, window_), "ncclCommWindowDeregister");
    }
    wait(nccl().CommFinalize(comm_), "ncclCommFinalize");
    const ncclResult_t result = nccl().CommDestroy(comm_);
    comm_ = nullptr;
    check(result == ncclSuccess || result == ncclInProgress,
          "ncclCommDestroy: ", nccl().GetErrorString(result));
  }

  // While a graph that has exchanged waits for the host; returns what the abort took.
  double abort_beside_graph() {
    const cuda::PinnedMemory go(sizeof(int));
    auto* const flag = reinterpret_cast<int*>(go.data());
    *flag = 0;
    graph_ = stream().capture([&] {
      exchange();
      stream().enqueue("wait for the host", [&] {
        cudaLaunchConfig_t config = {};
        config.gridDim = config.blockDim = dim3(1);
        config.stream = static_cast<cudaStream_t>(stream().native());
        (void)cudaLaunchKernelEx(&config, wait_for_host, static_cast<const int*>(flag));
      });
    });
    stream().replay(graph_);
    double seconds = 0;
    ncclResult_t result = ncclSuccess;
    std::thread watcher([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      (void)cudaSetDevice(device_);
      const double begin = host_clock();
      result = nccl().CommAbort(comm_);
      seconds = host_clock() - begin;
      *static_cast<volatile int*>(flag) = 1;
    });
    std::string why;
    try {
      stream().synchronize();
    } catch (const std::exception& e) {
      why = e.what();
    }
    watcher.join();
    comm_ = nullptr;
    graph_ = {};
    check(result == ncclSuccess, "ncclCommAbort: ", nccl().GetErrorString(result));
    check(why.empty(), "after it the stream failed: ", why);
    return seconds;
  }

 private:
  // Calls return at once, and are over when NCCL says so.
  void wait(ncclResult_t result, const char* call) const {
    while (result == ncclInProgress) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      const ncclResult_t asked = nccl().CommGetAsyncError(comm_, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result == ncclSuccess) return;
    const char* const last = comm_ ? nccl().GetLastError(comm_) : nullptr;
    fail(ErrorKind::device, call, ": ", nccl().GetErrorString(result),
         last && *last ? sentence(" (", last, ")") : "");
  }

  int device_;
  ncclComm_t comm_ = nullptr;
  std::unique_ptr<CudaStream> stream_;
  Tensor bytes_;  // all of its arena
  ncclWindow_t window_ = nullptr;
  Graph graph_;
};

OneRank::OneRank(int device) : device_(device) {}
OneRank::~OneRank() = default;

Measured OneRank::communicator() {
  const auto before = static_cast<double>(free_bytes(device_));
  group_ = std::make_unique<Group>(device_);
  const auto after = static_cast<double>(free_bytes(device_));
  return {
      {"free_bytes_before", before}, {"free_bytes_after", after}, {"taken_bytes", before - after}};
}

Measured OneRank::arena() {
  need(group_ != nullptr, "there is no communicator");
  group_->open_arena();
  return {};
}

Measured OneRank::window() {
  need(group_ != nullptr, "there is no communicator");
  group_->add_window();
  check(group_->has_window(), "NCCL takes no window of this memory, without an error");
  return {};
}

Measured OneRank::exchanges() {
  need(group_ != nullptr, "there is no communicator");
  const double first = group_->round(1, [&] { group_->exchange(); });
  const double second = group_->round(2, [&] { group_->exchange(); });
  return {{"first_ms", 1e3 * first}, {"second_ms", 1e3 * second}};
}

Measured OneRank::captured() {
  need(group_ != nullptr, "there is no communicator");
  check(group_->stream().captures(), "SPOOL_CUDA_SYNC=1 is in the environment; unset it");
  group_->capture();
  return {{"replay_ms", 1e3 * group_->round(3, [&] { group_->replay(); })}};
}

Measured OneRank::replayed(int times) {
  need(group_ != nullptr, "there is no communicator");
  double seconds = 0;
  for (int i = 0; i < times; ++i) seconds += group_->round(i, [&] { group_->replay(); });
  group_->round(times, [&] { group_->exchange(); });  // a graph and calls take turns
  return {{"replays", times}, {"replay_ms", 1e3 * seconds / times}};
}

Measured OneRank::ended() {
  need(group_ != nullptr, "there is no communicator");
  group_->end();
  group_.reset();
  return {{"free_bytes", static_cast<double>(free_bytes(device_))}};
}

Measured OneRank::aborted() {
  group_ = std::make_unique<Group>(device_);
  group_->open_arena();
  group_->add_window();
  const double seconds = group_->abort_beside_graph();
  group_.reset();
  return {{"abort_ms", 1e3 * seconds}, {"free_bytes", static_cast<double>(free_bytes(device_))}};
}

Measured OneRank::ranks() {
  const auto rank = on_device(ranks_of_threads(1).front(), {DeviceType::cuda, device_});
  CudaStream stream(device_, arena_bytes);
  const std::shared_ptr<void> window = rank->open(stream);
  return {};
}

}  // namespace spool::testing
