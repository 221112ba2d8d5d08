#if SPOOL_NCCL

#include "spool/runtime/cuda/nccl_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "spool/runtime/cuda/arena_memory.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/messages.h"
#include "spool/runtime/cuda/nccl_functions.cuh"
#include "spool/runtime/cuda/pieces.cuh"
#include "spool/runtime/ranks/packing.h"
#include "spool/runtime/ranks/watchdog.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace cuda {
namespace {

constexpr double patience_with_end = 30;  // seconds, of a communicator that nothing is wrong with

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

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
  void end_others(const std::string& why) override;

  void make_communicator();
  void exchange_once();
  void call(const char* name, Pattern, const std::byte* send, std::byte* receive, size_t piece,
            cudaStream_t);
  void make_call(const char* name, const std::function<ncclResult_t()>&);
  void wait_while_under_way(ncclResult_t, const char* call);
  [[noreturn]] void fail_with(ncclResult_t, const char* call);
  void look(double passed);
  void throw_if_ended() const { watchdog_.rethrow(); }
  void abort();
  void leave();

  const std::shared_ptr<Communicator> host_;
  const int device_;
  const NcclFunctions& nccl_ = nccl();
  ncclComm_t communicator_ = nullptr;
  size_t taken_bytes_ = 0;
  ExchangeProgress progress_;
  // Of the first exchanges, which tell nothing, and of all that were forgotten.
  unsigned long long nanoseconds_before_ = 0, sent_before_ = 0;
  size_t counted_ = 0;  // bytes of the exchanges so far
  bool is_refusal_said_ = false;
  std::mutex calls_;                           // of the communicator, which has one at a time
  std::atomic<const char*> called_ = nullptr;  // the call that the host waits in
  std::atomic<unsigned> calls_begun_ = 0;
  unsigned last_begun_ = 0;  // of the watchdog's looks, and the seconds since another was begun
  double waited_ = 0;
  Watchdog watchdog_;
};

// The memory of an arena, as one window of all ranks.
class NcclRanks::Window {
 public:
  Window(NcclRanks& ranks, const ArenaMemory& memory) : ranks_(ranks) {
    check(memory.why_not_shared().empty(),
          "ranks on GPUs need memory that they can share: ", memory.why_not_shared());
    ranks.make_call("ncclCommWindowRegister", [&] {
      return ranks.nccl_.CommWindowRegister(ranks.communicator_, memory.data(), memory.reserved(),
                                            &window_, NCCL_WIN_COLL_SYMMETRIC);
    });
    if (!window_ && ranks.rank() == 0 && !std::exchange(ranks.is_refusal_said_, true)) {
      log_warning(
          "NCCL takes no window of the GPUs' memory here, so exchanges go through its own "
          "buffers, on multiprocessors, and take longer");
    }
  }
  ~Window() {
    if (!window_) return;
    try {
      ranks_.make_call("ncclCommWindowDeregister", [&] {
        return ranks_.nccl_.CommWindowDeregister(ranks_.communicator_, window_);
      });
    } catch (...) {  // the communicator is aborted
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
      device_(made_current(device)),
      watchdog_({.look = [this](double passed) { look(passed); },
                 .abort = [this] { abort(); },
                 .say =
                     [this](const std::exception_ptr& error) {
                       say_last_words(rank(), error);
                       end_others_of(*host_, words_of(error));
                     }}) {
  try {
    const size_t free = cuda_device(device).free_bytes;
    make_communicator();
    exchange_once();
    taken_bytes_ = free - std::min(free, cuda_device(device).free_bytes);
  } catch (...) {
    watchdog_.end(std::current_exception());
    throw_if_ended();  // what came first, of which the other is a consequence
  }
}

NcclRanks::~NcclRanks() {
  const bool is_well = std::uncaught_exceptions() == 0 && !watchdog_.has_ended();
  if (is_well) {
    leave();
    return;
  }
  watchdog_.end(std::make_exception_ptr(
      Error(ErrorKind::device, "it ended by an error, and its GPU does not let go of exchanges")));
}

// None leaves while the watchdog of another looks after it.
void NcclRanks::leave() {
  watchdog_.stop_looking();
  try {
    host_->gather("the end of the ranks", "");
    const Deadline deadline(patience_with_end, [this] {
      say_last_words(rank(), std::make_exception_ptr(Error(
                                 ErrorKind::device, "NCCL does not end the ranks' communicator")));
    });
    make_call("ncclCommFinalize", [&] { return nccl_.CommFinalize(communicator_); });
    make_call(nullptr, [&] { return nccl_.CommDestroy(std::exchange(communicator_, nullptr)); });
  } catch (...) {
    watchdog_.end(std::current_exception());
  }
}

void NcclRanks::end_others(const std::string& why) {
  end_others_of(*host_, why);
  const std::exception_ptr current = std::current_exception();
  watchdog_.end(current ? current : std::make_exception_ptr(Error(ErrorKind::device, why)));
}

void NcclRanks::make_communicator() {
  ncclUniqueId id{};
  if (rank() == 0) make_call("ncclGetUniqueId", [&] { return nccl_.GetUniqueId(&id); });
  const std::string first =
      gather("NCCL's id", {reinterpret_cast<const char*>(&id), rank() == 0 ? sizeof id : 0})
          .front();
  std::memcpy(&id, first.data(), sizeof id);
  ncclConfig_t config = config_of_ranks();
  make_call("ncclCommInitRankConfig",
            [&] { return nccl_.CommInitRankConfig(&communicator_, size(), id, rank(), &config); });
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

std::shared_ptr<void> NcclRanks::open(Stream& of_device) {
  auto& stream = static_cast<CudaStream&>(of_device);
  watchdog_.at_end(stream.failure());
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
  const size_t sent = Communicator::sent() - counted_;  // 0 if it is not to be counted
  counted_ += sent;
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
  make_call(name, [&] { return function(send, receive, piece, ncclUint8, communicator_, stream); });
}

// Calls return at once, and are then asked for; of the last there is nothing to ask.  After one
// that does not end well, no other may be made.
void NcclRanks::make_call(const char* name, const std::function<ncclResult_t()>& begin) {
  ++calls_begun_;
  called_ = name;
  try {
    std::unique_lock lock(calls_);
    throw_if_ended();
    const ncclResult_t status = begin();
    lock.unlock();
    wait_while_under_way(status, name);
  } catch (...) {
    called_ = nullptr;
    watchdog_.end(std::current_exception());
    throw;
  }
  called_ = nullptr;
}

void NcclRanks::wait_while_under_way(ncclResult_t status, const char* call) {
  while (status == ncclInProgress && call) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    const std::lock_guard lock(calls_);
    throw_if_ended();
    const ncclResult_t asked = nccl_.CommGetAsyncError(communicator_, &status);
    if (asked != ncclSuccess) status = asked;
  }
  if (status != ncclSuccess && status != ncclInProgress) fail_with(status, call);
}

void NcclRanks::fail_with(ncclResult_t status, const char* call) {
  const std::unique_lock lock(calls_, std::try_to_lock);  // which a call that hangs may have
  const char* const last = lock && communicator_ ? nccl_.GetLastError(communicator_) : nullptr;
  spool::fail(ErrorKind::device, "NCCL: ", call ? call : "the last call", ": ",
              nccl_.GetErrorString(status), last && *last ? sentence(" (", last, ")") : "",
              "; NCCL_DEBUG=WARN in the environment shows more");
}

// After what the device waits in, and what the host waits in, where NCCL waits for other ranks.
void NcclRanks::look(double passed) {
  const ExchangeProgress::Reading now = progress_.read();
  const char* const called = called_;
  const char* const name = now.begun != now.ended ? now.name : called;
  const unsigned begun = now.begun + calls_begun_;
  waited_ = begun != last_begun_ || !name ? 0 : waited_ + passed;
  last_begun_ = begun;
  if (!name) return;
  host_->check_others(name, waited_);
  ncclResult_t status = ncclSuccess;
  {
    const std::unique_lock lock(calls_, std::try_to_lock);  // which a call that hangs may have
    if (!lock || !communicator_) return;
    const ncclResult_t asked = nccl_.CommGetAsyncError(communicator_, &status);
    if (asked != ncclSuccess) status = asked;
  }
  if (status == ncclSuccess || status == ncclInProgress) return;
  // A link fails, too, as another rank ends, which that one tells at once.
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    host_->check_others(name, waited_);
  }
  fail_with(status, name);
}

void NcclRanks::abort() {
  const std::lock_guard lock(calls_);
  if (communicator_) (void)nccl_.CommAbort(std::exchange(communicator_, nullptr));
}

}  // namespace
}  // namespace cuda

std::shared_ptr<Communicator> ranks_of_nccl(std::shared_ptr<Communicator> host, int device) {
  return std::make_shared<cuda::NcclRanks>(std::move(host), device);
}

}  // namespace spool

#endif
