#if SPOOL_NCCL

#include "spool/runtime/cuda/nccl_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "spool/runtime/cuda/arena_memory.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/messages.h"
#include "spool/runtime/cuda/nccl_ranks.cuh"
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

}  // namespace

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
    taken_bytes_ = taken_by([this] {
      make_communicator();
      exchange_once({Pattern::all_to_all, Pattern::all_gather});
    });
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

// Bytes of the device.
size_t NcclRanks::taken_by(const std::function<void()>& work) const {
  const size_t free = cuda_device(device_).free_bytes;
  work();
  return free - std::min(free, cuda_device(device_).free_bytes);
}

// So that NCCL takes what memory it takes before the device is asked for what is free.
void NcclRanks::exchange_once(std::initializer_list<Pattern> patterns) {
  constexpr const char* name = "the first of all";
  const size_t piece = packed_piece(1), area = packed_bytes(size(), 1);
  const ArenaMemory memory(device_, 2 * area);
  const StreamHandle stream = make_stream();
  Messages out, in;
  for (int r = 0; r < size(); ++r) {
    std::byte* const at = memory.data() + piece * static_cast<size_t>(r);
    if (r != rank()) out.push_back({r, at, piece}), in.push_back({r, at + area, piece});
  }
  {
    const Window window(*this, memory);
    for (const Pattern pattern : patterns) {
      const bool gathers = pattern == Pattern::all_gather;
      std::byte* const landing = memory.data() + (gathers ? 0 : area);
      const std::byte* const own =
          memory.data() + (gathers ? piece * static_cast<size_t>(rank()) : 0);
      progress_.begin(name, stream.get());
      if (pattern == Pattern::messages) {
        call_messages(name, out, in, stream.get());
      } else {
        call(name, pattern, own, landing, piece, stream.get());
      }
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

}  // namespace cuda

std::shared_ptr<Communicator> ranks_of_nccl(std::shared_ptr<Communicator> host, int device) {
  return std::make_shared<cuda::NcclRanks>(std::move(host), device);
}

}  // namespace spool

#endif
