// What exchanges check when they are called, and do when they run.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string_view>

#include "../text.h"
#include "../virtual_memory.h"
#include "communicator.h"
#include "counts.h"

namespace emulator::nccl {
namespace {

constexpr size_t alignment = 16;

// The environment may refuse all windows, as NCCL does where GPUs have no such memory: exchanges
// then need none.
bool refuses_windows() {
  const char* const text = std::getenv("EMULATOR_NCCL");
  return text && std::string_view(text) == "no_windows";
}

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclNumTypes:
      break;
  }
  throw Refusal(ncclInvalidArgument, sentence("there is no type ", static_cast<int>(type)));
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  return status == cudaStreamCaptureStatusActive;
}

uint64_t address(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

bool is_aligned(const void* memory, size_t to) { return address(memory) % to == 0; }

// The number of the exchange that is to fail, in this process; 0: none.
uint64_t failing_exchange() {
  const char* const text = std::getenv("EMULATOR_NCCL_FAILS_AT");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

}  // namespace

struct Communicator::Exchange {
  Arguments called;
  std::vector<Arguments> messages;  // of a group; not empty: it is this one
  size_t piece = 0;                 // bytes of one rank for one
  uint64_t number = 0;
  bool is_captured = false, by_copy_engines = false;

  std::byte* to() const { return static_cast<std::byte*>(called.receive); }
  bool gathers() const { return called.function == Function::all_gather; }
};

ncclResult_t Communicator::add_window(void* memory, size_t bytes, ncclWindow_t* window, int flags) {
  *window = nullptr;
  if (refuses_windows()) return ncclSuccess;  // and no window: so the library says it
  if (flags != NCCL_WIN_COLL_SYMMETRIC) {
    throw Refusal(ncclInvalidArgument, "a window here is NCCL_WIN_COLL_SYMMETRIC");
  }
  if (bytes == 0 || !is_aligned(memory, NCCL_WIN_REQUIRED_ALIGNMENT)) {
    throw Refusal(ncclInvalidArgument, sentence("a window begins at a multiple of ",
                                                NCCL_WIN_REQUIRED_ALIGNMENT, " bytes"));
  }
  auto* const begin = static_cast<std::byte*>(memory);
  const auto first = mapping_of(begin);
  for (const std::byte* at = begin; at < begin + bytes;) {
    const auto mapping = mapping_of(at);
    if (!mapping || !mapping->has_access || mapping->file < 0 || mapping->device != device_) {
      throw Refusal(ncclInvalidArgument,
                    sentence("a window is memory of device ", device_,
                             " by cuMemCreate, with file descriptors as handles, mapped and with "
                             "access: that of ",
                             bytes, " bytes is not, ", at - begin, " bytes from its beginning"));
    }
    at = mapping->begin + mapping->bytes;
  }
  const auto offset = static_cast<uint64_t>(begin - first->begin);
  const uint64_t number =
      say({.key = {.function = Function::register_window, .count = bytes, .send = offset},
           .place = {},
           .others = {}});
  return call([this, number, begin, bytes, window] {
    if (!all_called(number)) return false;
    windows_.push_back(std::make_unique<ncclWindow_vidmem>(ncclWindow_vidmem{begin, bytes}));
    *window = windows_.back().get();
    return true;
  });
}

void Communicator::remove_window(ncclWindow_t window) {
  need_done_work();
  for (auto& known : windows_) {
    if (window && known.get() == window) return known.reset();  // the others keep their numbers
  }
  throw Refusal(ncclInvalidArgument,
                "the window is none of this communicator, or was deregistered");
}

CallKey Communicator::place_in_windows(const Arguments& a, size_t given, size_t taken) const {
  CallKey key{.function = a.function, .type = a.type, .count = a.count};
  if (refuses_windows()) return key;
  const auto is_in = [](const ncclWindow_vidmem& w, const void* memory, size_t bytes) {
    const uint64_t offset = address(memory) - address(w.begin);
    return address(memory) >= address(w.begin) && offset <= w.bytes && bytes <= w.bytes - offset;
  };
  for (size_t i = 0; i < windows_.size(); ++i) {
    const ncclWindow_vidmem* const w = windows_[i].get();
    if (!w || !is_in(*w, a.send, given) || !is_in(*w, a.receive, taken)) continue;
    key.window = i + 1;
    key.send = address(a.send) - address(w->begin);
    key.receive = address(a.receive) - address(w->begin);
    return key;
  }
  throw Refusal(ncclInvalidArgument,
                sentence(name_of(a.function), " gives or takes memory outside of a window: ", given,
                         " bytes given, ", taken, " taken"));
}

void Communicator::check_stream(cudaStream_t stream) const {
  int current = 0;
  cudaGetDevice(&current);
  if (device_of(stream) == device_ && current == device_) return;
  throw Refusal(ncclInvalidArgument, sentence("the stream, or the thread's device ", current,
                                              ", is not the communicator's device ", device_));
}

Communicator::Exchange Communicator::prepare(const Arguments& a) {
  const size_t piece = a.count * size_of(a.type), taken = piece * static_cast<size_t>(ranks_);
  const bool gathers = a.function == Function::all_gather;
  const size_t given = gathers ? piece : taken;
  check_stream(a.stream);
  if (!is_aligned(a.send, alignment) || !is_aligned(a.receive, alignment)) {
    throw Refusal(ncclInvalidArgument, sentence(name_of(a.function),
                                                " gives or takes memory that "
                                                "is not aligned to ",
                                                alignment, " bytes"));
  }
  CallKey key = place_in_windows(a, given, taken);
  const uint64_t from = address(a.send), to = address(a.receive);
  if (gathers && from == to + piece * static_cast<size_t>(rank_)) {
    key.send = in_place;
  } else if (from < to + taken && to < from + given) {
    throw Refusal(ncclInvalidArgument,
                  sentence(name_of(a.function),
                           " takes into what it gives; in place only "
                           "ncclAllGather works, with the own piece at its place"));
  }
  key.is_captured = is_capturing(a.stream);
  const bool no_kernels =
      config_.CTAPolicy != NCCL_CONFIG_UNDEF_INT && (config_.CTAPolicy & NCCL_CTA_POLICY_ZERO);
  return {.called = a,
          .messages = {},
          .piece = piece,
          .number = say({.key = key, .place = {}, .others = {}}),
          .is_captured = key.is_captured,
          .by_copy_engines = no_kernels && key.window != 0};
}

Communicator::Exchange Communicator::prepare_messages(const std::vector<Arguments>& all) const {
  for (const Arguments& a : all) {
    check_stream(a.stream);
    if (!a.is_message() || a.stream != all.front().stream) {
      throw Refusal(ncclInvalidUsage,
                    "messages and other calls, or on several streams, are in one group");
    }
    if (a.peer >= 0 && a.peer < ranks_ && a.peer != rank_) continue;
    throw Refusal(ncclInvalidArgument, sentence(name_of(a.function), " on rank ", rank_, " of ",
                                                ranks_, " names rank ", a.peer));
  }
  return {.called = all.front(), .messages = all, .is_captured = is_capturing(all.front().stream)};
}

ncclResult_t Communicator::exchange(const std::vector<Arguments>& all) {
  std::vector<Exchange> prepared;
  if (std::ranges::any_of(all, &Arguments::is_message)) {
    prepared.push_back(prepare_messages(all));
  } else {
    for (const Arguments& a : all) prepared.push_back(prepare(a));
  }
  return call([this, prepared] {
    for (const Exchange& e : prepared) enqueue(e);
    return true;
  });
}

void Communicator::enqueue(const Exchange& e) {
  if (is_capturing(e.called.stream) != e.is_captured) {
    throw Refusal(ncclInvalidUsage, "a capture began or ended while an exchange was in progress");
  }
  const cudaError_t status = emulator::enqueue(
      e.called.stream, [self = shared_from_this(), e,
                        counted = e.is_captured ? in_graphs_ : on_streams_] { self->run(e); });
  if (status != cudaSuccess) {
    throw Refusal(ncclUnhandledCudaError, cudaGetErrorString(status));
  }
}

void Communicator::run(const Exchange& e) {
  if (e.is_captured && (aborted_ || own().left != 0)) {
    throw Error("a graph outlives its communicator: it replays an exchange after the end");
  }
  fill_with_nan(e);
  if (aborted_) return;
  runs_ = true;
  try {
    e.messages.empty() ? move_bytes(e) : move_messages(e);
  } catch (const Error& error) {
    print(error);
    runs_ = false;
    throw;
  }
  runs_ = false;
  if (aborted_) give_back_memory();
}

void Communicator::fill_with_nan(const Exchange& e) const {
  for (const Arguments& a : e.messages) {
    if (a.receive) std::memset(a.receive, 0xff, a.count * size_of(a.type));
  }
  if (!e.messages.empty()) return;
  for (int r = 0; r < ranks_; ++r) {
    std::byte* const piece = e.to() + e.piece * static_cast<size_t>(r);
    if (piece != e.called.send) std::memset(piece, 0xff, e.piece);
  }
}

bool Communicator::move_bytes(const Exchange& e) {
  Member& m = own();
  const uint64_t number = m.begun;
  const size_t pieces = e.gathers() ? 1 : static_cast<size_t>(ranks_);
  count_exchange(e.by_copy_engines);
  if (counts().exchanges == failing_exchange()) {
    keep(Refusal(ncclRemoteError, "an emulated failure of the link"));
    return wait_for_all([](const Member&) { return false; });
  }
  // All have what this rank gave before.
  if (!wait_for_all([&](const Member& other) { return other.ended >= number; })) return false;
  meeting_->give(rank_, 0, e.called.send, e.piece * pieces);
  m.run[number % kept_calls] = e.number;
  m.begun = number + 1;
  meeting_->tell();
  if (!wait_for_all([&](const Member& other) { return other.begun > number; })) return false;
  for (int r = 0; r < ranks_; ++r) {
    const uint64_t other = meeting_->member(r).run[number % kept_calls];
    if (other == e.number) continue;
    refuse_all(sentence("exchange ", number, " is call ", e.number, " on rank ", rank_,
                        " and call ", other, " on rank ", r,
                        ": a graph was replayed another number of times, or streams differ"));
  }
  for (int r = 0; r < ranks_; ++r) {
    const size_t offset = e.gathers() ? 0 : e.piece * static_cast<size_t>(rank_);
    meeting_->take(r, offset, e.to() + e.piece * static_cast<size_t>(r), e.piece);
  }
  m.ended = number + 1;
  meeting_->tell();
  return true;
}

// All are given before any is taken, so no ranks wait for each other.
bool Communicator::move_messages(const Exchange& e) {
  count_exchange(/*by_copy_engines=*/false);
  if (counts().exchanges == failing_exchange()) {
    keep(Refusal(ncclRemoteError, "an emulated failure of the link"));
    return wait_for_all([](const Member&) { return false; });
  }
  std::map<int, std::vector<Arguments>> given, taken;
  for (const Arguments& a : e.messages) (a.receive ? taken : given)[a.peer].push_back(a);
  for (const auto& [peer, messages] : given) {
    if (!give_messages(peer, messages)) return false;
  }
  for (const auto& [peer, messages] : taken) {
    if (!take_messages(peer, messages)) return false;
  }
  for (const auto& [peer, messages] : given) {
    const uint64_t all = own().given[peer];
    if (!wait_for(peer, [&](const Member& other) { return other.taken[rank_] == all; })) {
      return false;
    }
  }
  return true;
}

// How many there are, the bytes of each, and then these.
bool Communicator::give_messages(int peer, const std::vector<Arguments>& messages) {
  Member& m = own();
  const uint64_t before = m.given[peer];
  if (!wait_for(peer, [&](const Member& other) { return other.taken[rank_] == before; })) {
    return false;
  }
  std::vector<uint64_t> sizes{messages.size()};
  for (const Arguments& a : messages) sizes.push_back(a.count * size_of(a.type));
  if (std::accumulate(sizes.begin() + 1, sizes.end(), sizes.size() * sizeof sizes[0]) >
      Meeting::mailbox_bytes) {
    refuse_all(sentence("messages of a group to one rank have at most ", Meeting::mailbox_bytes,
                        " bytes here"));
  }
  size_t at = Meeting::mailbox(peer);
  meeting_->give(rank_, at, sizes.data(), sizes.size() * sizeof sizes[0]);
  at += sizes.size() * sizeof sizes[0];
  for (size_t i = 0; i < messages.size(); at += sizes[++i]) {
    meeting_->give(rank_, at, messages[i].send, sizes[i + 1]);
  }
  m.given[peer] = before + 1;
  meeting_->tell();
  return true;
}

bool Communicator::take_messages(int peer, const std::vector<Arguments>& messages) {
  Member& m = own();
  const uint64_t before = m.taken[peer];
  if (!wait_for(peer, [&](const Member& other) { return other.given[rank_] > before; })) {
    return false;
  }
  size_t at = Meeting::mailbox(rank_);
  uint64_t count = 0;
  meeting_->take(peer, at, &count, sizeof count);
  std::vector<uint64_t> sizes(count), wanted;
  for (const Arguments& a : messages) wanted.push_back(a.count * size_of(a.type));
  at += sizeof count;
  meeting_->take(peer, at, sizes.data(), count * sizeof count);
  if (sizes != wanted) {
    refuse_all(sentence("rank ", peer, " sends ", count, " messages to rank ", rank_,
                        " in a group, of which this one takes ", wanted.size(),
                        ", or their sizes differ"));
  }
  at += count * sizeof count;
  for (size_t i = 0; i < count; at += sizes[i++]) {
    meeting_->take(peer, at, messages[i].receive, sizes[i]);
  }
  m.taken[peer] = before + 1;
  meeting_->tell();
  return true;
}

bool Communicator::wait_for(int rank, const std::function<bool(const Member&)>& is_there) {
  const Member* const one = &meeting_->member(rank);
  return wait_for_all([&](const Member& other) { return &other != one || is_there(other); });
}

bool Communicator::wait_for_all(const std::function<bool(const Member&)>& is_there) {
  while (!aborted_) {
    const uint32_t turn = meeting_->turn();
    bool all = true;
    for (int r = 0; r < ranks_; ++r) {
      const Member& other = meeting_->member(r);
      if (is_there(other)) continue;
      all = false;
      if (other.was_refused) {
        throw Error(sentence("rank ", r, " was refused: ", other.why));
      }
      if (other.left == 0) continue;
      refuse_all(sentence("rank ", r, " ended its communicator after ", other.left - 1,
                          " exchanges, and rank ", rank_,
                          " runs another: a graph was replayed "
                          "another number of times, or calls are missing"));
    }
    if (all) return true;
    meeting_->wait(turn);
  }
  return false;
}

}  // namespace emulator::nccl
