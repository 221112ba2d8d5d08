#include "communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "../gpus.h"
#include "../text.h"
#include "counts.h"

namespace emulator::nccl {
namespace {

std::string describe(const Call& call) {
  const CallKey& key = call.key;
  if (key.function == Function::split) return name_of(key.function);
  if (key.function == Function::register_window) {
    return sentence(name_of(key.function), " of ", key.count, " bytes from byte ", key.send,
                    " of their memory on");
  }
  const std::string from = key.send == in_place ? "in place" : sentence("from byte ", key.send);
  return sentence(name_of(key.function), " of ", key.count, " numbers of type ", key.type,
                  key.is_captured ? ", captured, " : ", not captured, ", from, " to byte ",
                  key.receive, " of window ", key.window);
}

// How often other communicators were called before, if both ranks have them and differ in that.
std::string differing_order(const Call& own, const Call& other) {
  for (const Call::Other& a : own.others) {
    for (const Call::Other& b : other.others) {
      if (a.communicator == 0 || a.communicator != b.communicator || a.calls == b.calls) continue;
      return sentence(a.calls, " calls on another communicator come before it, and ", b.calls);
    }
  }
  return "";
}

// EMULATOR_NCCL_HANGS=abort and =init make the process's calls of that kind never return.
void hang_if_told(const char* call) {
  const char* const told = std::getenv("EMULATOR_NCCL_HANGS");
  while (told && std::string_view(told) == call) ::pause();
}

}  // namespace

const char* name_of(Function function) {
  constexpr const char* names[] = {"ncclAlltoAll",           "ncclAllGather", "ncclCommSplit",
                                   "ncclCommWindowRegister", "ncclSend",      "ncclRecv"};
  return names[static_cast<int>(function)];
}

void print(const Error& e) { std::fprintf(stderr, "emulated NCCL: %s\n", e.what()); }

Communicator::Communicator(std::shared_ptr<Meeting> meeting, int rank, int ranks,
                           const ncclConfig_t& config, size_t memory)
    : meeting_(std::move(meeting)), rank_(rank), ranks_(ranks), config_(config) {
  hang_if_told("init");
  cudaGetDevice(&device_);
  void* taken = nullptr;
  if (cudaMalloc(&taken, memory) != cudaSuccess) {
    throw Refusal(ncclUnhandledCudaError, "there is no memory for a communicator");
  }
  memory_ = taken;
  try {
    meeting_->join(rank, ranks, gpu_of(device_));
  } catch (const Error& e) {
    give_back_memory();
    throw Refusal(ncclInvalidArgument, e.what());
  }
}

void Communicator::give_back_memory() {
  if (void* const memory = memory_.exchange(nullptr)) cudaFree(memory);
}

bool Communicator::is_complete() const {
  for (int r = 0; r < ranks_; ++r) {
    if (meeting_->member(r).process == 0) return false;
  }
  for (int a = 0; a < ranks_; ++a) {
    for (int b = 0; b < a; ++b) {
      if (meeting_->member(a).gpu != meeting_->member(b).gpu) continue;
      throw Refusal(ncclInvalidUsage, sentence("duplicate GPU: ranks ", b, " and ", a,
                                               " both have GPU ", meeting_->member(a).gpu));
    }
  }
  return true;
}

ncclResult_t Communicator::call(Step step) {
  if (config_.blocking != 0) {
    for (uint32_t turn = meeting_->turn(); !step(); turn = meeting_->turn()) {
      if (const ncclResult_t now = state(); now != ncclSuccess) throw Refusal(now, failure());
      meeting_->wait(turn);
    }
    return ncclSuccess;
  }
  const std::lock_guard lock(mutex_);
  step_ = std::move(step);
  caller_ = std::this_thread::get_id();
  was_asked_ = false;
  return ncclInProgress;
}

ncclResult_t Communicator::state() {
  Step step;
  {
    const std::lock_guard lock(mutex_);
    for (int r = 0; r < ranks_ && !failure_; ++r) {
      const Member& other = meeting_->member(r);
      if (!other.was_refused) continue;
      failure_ = Refusal(ncclRemoteError, sentence("rank ", r, " was refused: ", other.why));
    }
    if (failure_) return failure_->result;
    if (!step_) return ncclSuccess;
    if (caller_ != std::this_thread::get_id()) return ncclInProgress;
    if (!std::exchange(was_asked_, true)) return ncclInProgress;
    step = step_;
  }
  try {
    if (!step()) return ncclInProgress;
  } catch (const Refusal& refusal) {
    print(refusal);
    tell_all(refusal);
    return refusal.result;
  }
  const std::lock_guard lock(mutex_);
  step_ = nullptr;
  return ncclSuccess;
}

std::string Communicator::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_ ? failure_->what() : "";
}

void Communicator::need_ready() const {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    throw Refusal(ncclInvalidUsage, sentence("the communicator failed before: ", failure_->what()));
  }
  if (step_) {
    throw Refusal(ncclInvalidUsage,
                  "a call on this communicator is in progress: ask ncclCommGetAsyncError, on the "
                  "thread that made it, until it has ended");
  }
  if (own().left != 0) throw Refusal(ncclInvalidUsage, "the communicator was finalized");
}

void Communicator::keep(const Refusal& refusal) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = refusal;
}

void Communicator::tell_all(const Refusal& refusal) {
  keep(refusal);
  mark_as_refused(refusal);
  for (const auto& another : list_communicators()) another->mark_as_refused(refusal);
}

void Communicator::mark_as_refused(const Refusal& refusal) const {
  Member& m = own();
  if (!m.was_refused) std::snprintf(m.why, sizeof m.why, "%s", refusal.what());
  m.was_refused = true;
  meeting_->tell();
}

void Communicator::refuse_all(const std::string& sentence) {
  const Refusal refusal(ncclInvalidUsage, sentence);
  tell_all(refusal);
  throw refusal;
}

uint64_t Communicator::say(Call call) {
  size_t others = 0;
  for (const auto& another : list_communicators()) {
    if (another.get() == this) continue;
    if (others == max_communicators) throw Refusal(ncclInvalidUsage, "too many communicators");
    call.others[others++] = {another->meeting_->place().nonce, another->own().calls};
  }
  Member& m = own();
  const uint64_t number = m.calls;
  for (int r = 0; r < ranks_; ++r) {
    if (meeting_->member(r).calls + kept_calls / 2 >= number) continue;
    refuse_all(sentence("rank ", rank_, " is ", kept_calls / 2, " calls ahead of rank ", r,
                        ", which is more than this stand-in keeps"));
  }
  m.call[number % kept_calls] = call;
  m.calls = number + 1;
  meeting_->tell();
  for (int r = 0; r < ranks_; ++r) {
    if (meeting_->member(r).calls > number) compare(number, r);
  }
  return number;
}

void Communicator::compare(uint64_t number, int r) {
  const Call& mine = own().call[number % kept_calls];
  const Call& other = meeting_->member(r).call[number % kept_calls];
  if (mine.key != other.key) {
    refuse_all(sentence("call ", number, " differs between ranks: on rank ", rank_, " it is ",
                        describe(mine), ", on rank ", r, " ", describe(other)));
  }
  if (const std::string order = differing_order(mine, other); !order.empty()) {
    refuse_all(sentence("call ", number, ", ", name_of(mine.key.function),
                        ", comes in another order on rank ", rank_, " than on rank ", r, ": ",
                        order));
  }
}

bool Communicator::all_called(uint64_t number) {
  for (int r = 0; r < ranks_; ++r) {
    if (meeting_->member(r).calls <= number) return false;
  }
  for (int r = 0; r < ranks_; ++r) compare(number, r);
  return true;
}

ncclResult_t Communicator::split(int color, int key, const ncclConfig_t* config, ncclComm_t* made) {
  const auto offered = Meeting::make();
  const uint64_t number = say({.key = {.function = Function::split},
                               .color = color,
                               .order = key,
                               .place = offered->place(),
                               .others = {}});
  *made = nullptr;
  return call([this, offered, number, color, made, c = config ? *config : config_,
               made_here = std::make_shared<std::shared_ptr<Communicator>>()] {
    std::shared_ptr<Communicator>& child = *made_here;
    if (!all_called(number)) return false;
    if (color == NCCL_SPLIT_NOCOLOR) return true;
    if (!child) {
      std::vector<std::pair<int, int>> group;  // by their keys
      for (int r = 0; r < ranks_; ++r) {
        const Call& other = meeting_->member(r).call[number % kept_calls];
        if (other.color == color) group.emplace_back(other.order, r);
      }
      std::sort(group.begin(), group.end());
      const auto self = std::ranges::find(group, rank_, &std::pair<int, int>::second);
      const int first = group.front().second;
      const Place& place = meeting_->member(first).call[number % kept_calls].place;
      child = std::make_shared<Communicator>(first == rank_ ? offered : Meeting::open(place),
                                             static_cast<int>(self - group.begin()),
                                             static_cast<int>(group.size()), c, size_t{1} << 20);
    }
    if (!child->is_complete()) return false;
    *made = add(std::move(child));
    return true;
  });
}

void Communicator::need_done_work() const {
  if (on_streams_.use_count() > 1) {
    throw Refusal(ncclInvalidUsage, "exchanges of the communicator still wait on a stream");
  }
  if (in_graphs_.use_count() > 1) {
    throw Refusal(ncclInvalidUsage,
                  "a graph outlives its communicator: destroy graphs before their communicators");
  }
}

void Communicator::leave() {
  own().left = own().ended + 1;
  meeting_->tell();
  compare_ends();
}

void Communicator::compare_ends() {
  const Member& mine = own();
  for (int r = 0; r < ranks_; ++r) {
    const Member& other = meeting_->member(r);
    const bool has_left = other.left != 0;
    const uint64_t runs = has_left ? other.left - 1 : other.begun.load();
    if (has_left ? runs == mine.ended && other.calls == mine.calls : runs <= mine.ended) continue;
    refuse_all(sentence("rank ", rank_, " ends its communicator after ", mine.calls.load(),
                        " calls, of which ", mine.ended.load(), " exchanges ran, and rank ", r,
                        " made ", other.calls.load(), " and ran ", runs,
                        ": a graph was replayed another number of times, or calls are missing"));
  }
}

ncclResult_t Communicator::finalize() {
  need_ready();
  need_done_work();
  leave();
  return call([this] {
    for (int r = 0; r < ranks_; ++r) {
      if (meeting_->member(r).left == 0) return false;
    }
    compare_ends();
    return true;
  });
}

void Communicator::destroy() {
  if (const std::string why = failure(); !why.empty()) {
    throw Refusal(ncclInvalidUsage,
                  sentence("a communicator that failed is aborted, not destroyed: ", why));
  }
  need_done_work();
  if (own().left == 0) {
    need_ready();
    leave();
  } else {
    const std::lock_guard lock(mutex_);
    if (step_) throw Refusal(ncclInvalidUsage, "ncclCommFinalize is in progress");
  }
  write_counts(rank_, ranks_);
  give_back_memory();
}

void Communicator::abort() {
  hang_if_told("abort");
  if (config_.blocking != 0) {
    throw Refusal(ncclInvalidUsage,
                  "a blocking communicator is not aborted here: what its threads "
                  "wait in may never return");
  }
  if (inside > 0) {
    throw Refusal(ncclInvalidUsage, "a thread is inside a call on the communicator");
  }
  aborted_ = true;
  meeting_->tell();
  {
    const std::lock_guard lock(mutex_);
    step_ = nullptr;
  }
  write_counts(rank_, ranks_);
  if (!runs_) give_back_memory();
}

}  // namespace emulator::nccl
