// What ranks on GPUs exchange, and how calls of NCCL are made and end.

#if SPOOL_NCCL

#include <chrono>
#include <thread>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/cuda/nccl_ranks.cuh"

namespace spool::cuda {

void NcclRanks::enqueue(Exchange e, Stream& queue) {
  auto& stream = static_cast<CudaStream&>(queue);
  auto* const native = static_cast<cudaStream_t>(stream.native());
  const size_t sent = Communicator::sent() - counted_;  // 0 if it is not to be counted
  counted_ += sent;
  const auto enqueue_calls = [&](const std::function<void()>& calls) {
    stream.enqueue(e.name, [&] {
      progress_.begin(e.name, native);
      calls();
      progress_.end(sent, native);
    });
  };
  if (e.pattern == Pattern::messages) {
    return enqueue_calls([&] { call_messages(e.name, e.out, e.in, native); });
  }
  const size_t piece = packed_piece(e.piece);
  const bool gathers = e.pattern == Pattern::all_gather;
  check(gathers || e.piece == piece, "exchange '", e.name, "': pieces of ", e.piece,
        " bytes do not land one behind another; they have a multiple of ", packed_piece(1));
  const auto at = [&](std::byte* area, int peer) {
    return area + piece * static_cast<size_t>(peer);
  };
  std::vector<PieceCopy> packed, unpacked;
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
  enqueue_calls([&] {
    call(e.name, e.pattern, gathers ? at(e.workspace, rank()) : e.workspace, landing, piece,
         native);
  });
  enqueue_copies("unpack pieces", unpacked, stream);
}

void NcclRanks::call(const char* name, Pattern pattern, const std::byte* send, std::byte* receive,
                     size_t piece, cudaStream_t stream) {
  const bool gathers = pattern == Pattern::all_gather;
  const auto function = gathers ? nccl_.AllGather : nccl_.AlltoAll;
  make_call(name, [&] { return function(send, receive, piece, ncclUint8, communicator_, stream); });
}

// All at once, as each waits for the rank that it is with.
void NcclRanks::call_messages(const char* name, const Messages& out, const Messages& in,
                              cudaStream_t stream) {
  make_call(name, [&] {
    ncclResult_t first_failure = nccl_.GroupStart();
    const auto add = [&](ncclResult_t status) {
      if (first_failure == ncclSuccess && status != ncclInProgress) first_failure = status;
    };
    for (const Message& m : out) {
      if (m.bytes > 0) add(nccl_.Send(m.data, m.bytes, ncclUint8, m.peer, communicator_, stream));
    }
    for (const Message& m : in) {
      if (m.bytes > 0) add(nccl_.Recv(m.data, m.bytes, ncclUint8, m.peer, communicator_, stream));
    }
    const ncclResult_t ended = nccl_.GroupEnd();
    return first_failure == ncclSuccess ? ended : first_failure;
  });
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
  constexpr int at_once = 100;  // times; few calls take as long
  for (int i = 0; status == ncclInProgress && call; ++i) {
    i < at_once ? std::this_thread::yield()
                : std::this_thread::sleep_for(std::chrono::microseconds(50));
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

}  // namespace spool::cuda

#endif
