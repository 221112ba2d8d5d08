#if SPOOL_NCCL

#include "spool/runtime/cuda/nccl_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "spool/runtime/cuda/arena_memory.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/messages.h"
#include "spool/runtime/cuda/nccl_functions.cuh"
#include "spool/runtime/cuda/pieces.cuh"
#include "spool/runtime/ranks/packing.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace cuda {
namespace {

constexpr double watch_period = 0.1, patience_with_host = 5;  // seconds

class NcclRanks final : public Communicator {
 public:
  NcclRanks(std::shared_ptr<Communicator> host, int device);
  ~NcclRanks() override;
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  const char* kind() const override { return "nccl"; }
  size_t workspace_bytes(size_t piece) const override { return packed_bytes(size(), piece); }
  std::shared_ptr<void> open(Stream&) override;
  std::function<void()> measured_exchange(size_t bytes) override;
  void is_doing(const std::string& what) override { host_->is_doing(what); }
  bool has_lower_rank_failed() override { return host_->has_lower_rank_failed(); }
  void check_others(const char* exchange, double waited) override {
    host_->check_others(exchange, waited);
  }
  size_t taken_bytes() const override { return taken_bytes_; }
  size_t sent() const override { return progress_.read().sent - sent_before_; }
  void forget_sent() override { sent_before_ = progress_.read().sent; }
  double seconds() const override {
    return static_cast<double>(progress_.read().nanoseconds - nanoseconds_before_) * 1e-9;
  }

 private:
  class Window;

  void enqueue(Exchange, Stream& queue) override;
  void move(const char* name, const Messages& out, const Messages& in, double) override {
    host_->move_now(name, out, in);
  }
  void end_others(const std::string& why) override {
    host_came_back_ = true;
    stops_.notify_all();
    end_others_of(*host_, why);
  }

  void make_communicator();
  void exchange_once();
  void call(const char* name, Pattern, const std::byte* send, std::byte* receive, size_t piece,
            cudaStream_t);
  void wait_for(ncclResult_t, const char* call);
  void wait_while_under_way(ncclResult_t, const char* call);
  [[noreturn]] void fail_with(ncclResult_t, const char* call);
  void watch();
  void end_watching();
  void check_exchanges(double waited, const char* name);
  void end_device_work(const std::exception_ptr&);
  void throw_if_ended();
  void abort();

  const std::shared_ptr<Communicator> host_;
  const int device_;
  const NcclFunctions& nccl_ = nccl();
  ncclComm_t communicator_ = nullptr;
  size_t taken_bytes_ = 0;
  ExchangeProgress progress_;
  // Of the first exchanges, which tell nothing, and of all that were forgotten.
  unsigned long long nanoseconds_before_ = 0, sent_before_ = 0;
  std::atomic<bool> is_aborted_ = false, host_came_back_ = false;

  std::mutex mutex_;  // of what follows, and of calls on the communicator
  std::condition_variable stops_;
  bool is_over_ = false;
  std::function<void(std::exception_ptr)> fail_stream_;
  std::exception_ptr error_;  // for which the watcher ended the device's work
  std::thread watcher_;
};

// The memory of an arena, as one window of all ranks.
class NcclRanks::Window {
 public:
  Window(NcclRanks& ranks, const ArenaMemory& memory) : ranks_(ranks) {
    check(memory.why_not_shared().empty(),
          "ranks on GPUs need memory that they can share: ", memory.why_not_shared());
    ranks.wait_for(
        ranks.nccl_.CommWindowRegister(ranks.communicator_, memory.data(), memory.reserved(),
                                       &window_, NCCL_WIN_COLL_SYMMETRIC),
        "ncclCommWindowRegister");
    if (!window_ && ranks.rank() == 0) {
      log_warning(
          "NCCL takes no window of the GPUs' memory here, so exchanges go through its own "
          "buffers, on multiprocessors, and take longer");
    }
  }
  ~Window() {
    if (!window_ || ranks_.is_aborted_) return;
    try {
      ranks_.wait_for(ranks_.nccl_.CommWindowDeregister(ranks_.communicator_, window_),
                      "ncclCommWindowDeregister");
    } catch (const Error&) {  // another rank ended; the communicator will be aborted
    }
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

 private:
  NcclRanks& ranks_;
  ncclWindow_t window_ = nullptr;
};

NcclRanks::NcclRanks(std::shared_ptr<Communicator> host, int device)
    : Communicator(host->rank(), host->size()),
      host_(std::move(host)),
      device_(made_current(device)) {
  try {
    const size_t free = cuda_device(device).free_bytes;
    make_communicator();
    watcher_ = std::thread([this] { watch(); });
    exchange_once();
    taken_bytes_ = free - std::min(free, cuda_device(device).free_bytes);
  } catch (...) {
    if (communicator_) abort();
    end_watching();
    if (error_) std::rethrow_exception(error_);  // of which the other is a consequence
    throw;
  }
}

void NcclRanks::end_watching() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  stops_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

NcclRanks::~NcclRanks() {
  end_watching();
  if (is_aborted_) return;
  try {
    check(std::uncaught_exceptions() == 0, "another error ends the ranks");
    wait_for(nccl_.CommFinalize(communicator_), "ncclCommFinalize");
    wait_for(nccl_.CommDestroy(communicator_), nullptr);
  } catch (const Error&) {
    abort();
  }
}

void NcclRanks::make_communicator() {
  ncclUniqueId id{};
  if (rank() == 0) wait_for(nccl_.GetUniqueId(&id), "ncclGetUniqueId");
  const std::string first =
      gather("NCCL's id", {reinterpret_cast<const char*>(&id), rank() == 0 ? sizeof id : 0})
          .front();
  std::memcpy(&id, first.data(), sizeof id);
  ncclConfig_t config = config_of_ranks();
  wait_for(nccl_.CommInitRankConfig(&communicator_, size(), id, rank(), &config),
           "ncclCommInitRankConfig");
}

// So that NCCL takes what memory it takes before the device is asked for what is free.
void NcclRanks::exchange_once() {
  const size_t piece = packed_piece(1), area = packed_bytes(size(), 1);
  const ArenaMemory memory(device_, 2 * area);
  const StreamHandle stream = make_stream();
  {
    const Window window(*this, memory);
    for (const Pattern pattern : {Pattern::all_to_all, Pattern::all_gather}) {
      const bool gathers = pattern == Pattern::all_gather;
      std::byte* const landing = memory.data() + (gathers ? 0 : area);
      const std::byte* const own =
          memory.data() + (gathers ? piece * static_cast<size_t>(rank()) : 0);
      progress_.begin("the first of all", stream.get());
      call("the first of all", pattern, own, landing, piece, stream.get());
      progress_.end(/*sent=*/0, stream.get());
    }
    check_call(cudaStreamSynchronize(stream.get()), "the first exchange of the ranks");
    throw_if_ended();
  }
  nanoseconds_before_ = progress_.read().nanoseconds;
}

std::function<void()> NcclRanks::measured_exchange(size_t bytes) {
  struct Measured {
    ArenaMemory memory;
    StreamHandle stream = make_stream();
    Window window;
    Measured(NcclRanks& ranks, size_t area)
        : memory(ranks.device_, 2 * area), window(ranks, memory) {}
  };
  const size_t piece = packed_piece(bytes / static_cast<size_t>(std::max(size() - 1, 1)));
  const size_t area = packed_bytes(size(), piece);
  (void)made_current(device_);
  return [this, piece, area, of = std::make_shared<Measured>(*this, area)] {
    constexpr const char* name = "link";
    progress_.begin(name, of->stream.get());
    call(name, Pattern::all_to_all, of->memory.data(), of->memory.data() + area, piece,
         of->stream.get());
    progress_.end(/*sent=*/0, of->stream.get());
    check_call(cudaStreamSynchronize(of->stream.get()), name);
    throw_if_ended();
    nanoseconds_before_ = progress_.read().nanoseconds;
  };
}

// After the watcher ended what waited on the device, which looks as if it had been done.
void NcclRanks::throw_if_ended() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

std::shared_ptr<void> NcclRanks::open(Stream& of_device) {
  auto& stream = static_cast<CudaStream&>(of_device);
  {
    const std::lock_guard lock(mutex_);
    fail_stream_ = stream.failure();
  }
  throw_if_ended();
  return std::make_shared<Window>(*this, arena_memory(stream));
}

void NcclRanks::enqueue(Exchange e, Stream& queue) {
  auto& stream = static_cast<CudaStream&>(queue);
  auto* const native = static_cast<cudaStream_t>(stream.native());
  const size_t piece = packed_piece(e.piece);
  const bool gathers = e.pattern == Pattern::all_gather;
  check(gathers || e.piece == piece, "exchange '", e.name, "': pieces of ", e.piece,
        " bytes do not land one behind another; they have a multiple of ", packed_piece(1));
  const auto at = [&](std::byte* area, int peer) {
    return area + piece * static_cast<size_t>(peer);
  };
  std::vector<PieceCopy> packed, unpacked;
  const size_t sent = bytes_to_others(e.out, rank());
  for (const Message& m : e.out) {
    if (gathers && m.peer != e.out.front().peer) continue;
    packed.push_back({at(e.workspace, gathers ? rank() : m.peer) + m.at, m.data, m.bytes});
  }
  std::byte* const landing = gathers ? e.workspace : e.landing;
  for (const Message& m : e.in) {
    const std::byte* const from = at(landing, m.peer) + m.at;
    if (from != m.data) unpacked.push_back({m.data, from, m.bytes});
  }
  enqueue_copies("pack pieces", packed, stream);
  stream.enqueue(e.name, [&] {
    progress_.begin(e.name, native);
    call(e.name, e.pattern, gathers ? at(e.workspace, rank()) : e.workspace, landing, piece,
         native);
    progress_.end(sent, native);
  });
  enqueue_copies("unpack pieces", unpacked, stream);
}

void NcclRanks::call(const char* name, Pattern pattern, const std::byte* send, std::byte* receive,
                     size_t piece, cudaStream_t stream) {
  const bool gathers = pattern == Pattern::all_gather;
  const auto function = gathers ? nccl_.AllGather : nccl_.AlltoAll;
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  const ncclResult_t status = function(send, receive, piece, ncclUint8, communicator_, stream);
  lock.unlock();
  wait_for(status, name);
}

// Calls on the communicator return at once.  Of the last there is nothing to ask.  After one that
// does not end well, no other may be made.
void NcclRanks::wait_for(ncclResult_t status, const char* call) {
  try {
    wait_while_under_way(status, call);
  } catch (const Error&) {
    if (communicator_) abort();
    throw;
  }
}

void NcclRanks::wait_while_under_way(ncclResult_t status, const char* call) {
  const double begin = host_clock();
  while (status == ncclInProgress && call) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    {
      const std::lock_guard lock(mutex_);
      check(!is_aborted_, "NCCL was ended while ", call, " was under way");
      const ncclResult_t asked = nccl_.CommGetAsyncError(communicator_, &status);
      if (asked != ncclSuccess) status = asked;
    }
    if (status == ncclInProgress) host_->check_others(call, host_clock() - begin);
  }
  if (status != ncclSuccess && status != ncclInProgress) fail_with(status, call);
}

void NcclRanks::fail_with(ncclResult_t status, const char* call) {
  const bool is_there = communicator_ && !is_aborted_;
  const char* const last = is_there ? nccl_.GetLastError(communicator_) : nullptr;
  spool::fail(ErrorKind::device, "NCCL: ", call ? call : "the last call", ": ",
              nccl_.GetErrorString(status), last && *last ? sentence(" (", last, ")") : "",
              "; NCCL_DEBUG=WARN in the environment shows more");
}

void NcclRanks::watch() {
  unsigned last_begun = 0;
  double waited = 0, last_look = host_clock();
  std::unique_lock lock(mutex_);
  while (!stops_.wait_for(lock, std::chrono::duration<double>(watch_period),
                          [&] { return is_over_; })) {
    const ExchangeProgress::Reading now = progress_.read();
    // Not the time in which this process itself was stopped.
    const double elapsed = std::min(host_clock() - last_look, 2 * watch_period);
    last_look = host_clock();
    waited = now.begun != last_begun || now.begun == now.ended ? 0 : waited + elapsed;
    last_begun = now.begun;
    if (now.begun == now.ended) continue;
    lock.unlock();
    try {
      check_exchanges(waited, now.name);
    } catch (const Error&) {
      return end_device_work(std::current_exception());
    }
    lock.lock();
  }
}

void NcclRanks::check_exchanges(double waited, const char* name) {
  host_->check_others(name, waited);
  ncclResult_t status = ncclSuccess;
  const std::lock_guard lock(mutex_);
  const ncclResult_t asked = nccl_.CommGetAsyncError(communicator_, &status);
  if (asked != ncclSuccess) status = asked;
  if (status != ncclSuccess && status != ncclInProgress) fail_with(status, name);
}

// The host, which may wait for the device, then finds the error, and ends the ranks.
void NcclRanks::end_device_work(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = error;
    if (fail_stream_) fail_stream_(error);
  }
  abort();
  std::unique_lock lock(mutex_);
  const bool is_back = stops_.wait_for(lock, std::chrono::duration<double>(patience_with_host),
                                       [&] { return is_over_ || host_came_back_; });
  if (is_back) return;
  try {
    std::rethrow_exception(error);
  } catch (const RankEnded& e) {
    if (e.loss() != RankLoss::another_tells) log_error(e.what());
    end_others_of(*host_, e.what());
  } catch (const std::exception& e) {
    log_error(e.what());
    end_others_of(*host_, e.what());
  }
  ::_exit(1);
}

void NcclRanks::abort() {
  const std::lock_guard lock(mutex_);
  if (is_aborted_.exchange(true)) return;
  (void)nccl_.CommAbort(communicator_);
}

}  // namespace
}  // namespace cuda

std::shared_ptr<Communicator> ranks_of_nccl(std::shared_ptr<Communicator> host, int device) {
  return std::make_shared<cuda::NcclRanks>(std::move(host), device);
}

}  // namespace spool

#endif
