#pragma once

// A stand-in for NCCL between processes, each with an emulated device, that is stricter than the
// library.  Bytes move as late as CUDA allows: when the host waits for the stream.
//
// A call on a communicator that is not blocking (config.blocking == 0) returns ncclInProgress, and
// what it does is done when the thread that made it has asked ncclCommGetAsyncError until that says
// so, which is never at the first time; until then no other call on it is allowed.
//
// Refused are, in a sentence on standard error and by ncclGetLastError:
// - calls whose order, function, count, type, places in their windows, or being captured differs
//   between ranks, their order over all communicators of a device;
// - exchanges that run in another order or another number of times (replays of a graph);
// - messages outside of a group of calls, or of other sizes than what the other rank takes;
// - memory outside a window, windows of other memory than cuMemCreate's, places that are not
//   aligned;
// - a configuration that is not initialised, a device that two ranks have;
// - a communicator that ends before its graphs or its work; an abort of a blocking one, or while a
//   thread is inside a call on it.
// Who waits for a rank that was refused is told.  A rank that dies or never comes leaves the others
// waiting until they abort.
//
// An exchange fills what it takes with NaN before it waits for others, and leaves that if it ends
// without them.

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../execution.h"
#include "meeting.h"
#include "nccl.h"

struct ncclWindow_vidmem {
  std::byte* begin = nullptr;
  size_t bytes = 0;
};

namespace emulator::nccl {

constexpr uint64_t in_place = ~uint64_t{0};  // where a rank gives what lies where it takes

struct Refusal : Error {
  Refusal(ncclResult_t why, const std::string& sentence) : Error(sentence), result(why) {}
  ncclResult_t result;
};

// An exchange as it is called.
struct Arguments {
  Function function = {};
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  cudaStream_t stream = nullptr;
  int peer = -1;  // of a message

  bool is_message() const { return function == Function::send || function == Function::receive; }
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Joins the meeting on the current device, and takes memory there.
  Communicator(std::shared_ptr<Meeting>, int rank, int ranks, const ncclConfig_t&, size_t memory);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const ncclConfig_t& config() const { return config_; }
  // Whether all ranks are there; throws if two of them have one device.
  bool is_complete() const;

  // Makes the communicator's next call: at once, or as the thread asks state().  A step returns
  // whether it was the last.
  using Step = std::function<bool()>;
  ncclResult_t call(Step);
  ncclResult_t state();
  std::string failure() const;
  // Throws if no call may be made now.
  void need_ready() const;

  ncclResult_t split(int color, int key, const ncclConfig_t*, ncclComm_t* made);
  ncclResult_t add_window(void* memory, size_t bytes, ncclWindow_t*, int flags);
  void remove_window(ncclWindow_t);
  ncclResult_t exchange(const std::vector<Arguments>&);
  ncclResult_t finalize();
  void destroy();
  void abort();

  std::atomic<int> inside = 0;  // calls that threads make on it now

 private:
  struct Exchange;

  // Says what this rank calls, and compares it with what the others called.
  uint64_t say(Call);
  void compare(uint64_t number, int other);
  // Whether all made this call, and the same.
  bool all_called(uint64_t number);
  CallKey place_in_windows(const Arguments&, size_t given, size_t taken) const;
  void check_stream(cudaStream_t) const;
  Exchange prepare(const Arguments&);
  Exchange prepare_messages(const std::vector<Arguments>&) const;
  void enqueue(const Exchange&);
  void need_done_work() const;
  void leave();
  void compare_ends();

  void run(const Exchange&);
  void fill_with_nan(const Exchange&) const;
  // False if the communicator was aborted meanwhile.
  bool move_bytes(const Exchange&);
  bool move_messages(const Exchange&);
  bool give_messages(int peer, const std::vector<Arguments>&);
  bool take_messages(int peer, const std::vector<Arguments>&);
  // Waits for all ranks, or one, with the same result.
  bool wait_for_all(const std::function<bool(const Member&)>& is_there);
  bool wait_for(int rank, const std::function<bool(const Member&)>& is_there);

  Member& own() const { return meeting_->member(rank_); }
  void keep(const Refusal&);
  // Keeps why this rank was refused, and tells the others, who fail too, and the ranks of all other
  // communicators of this process, which may wait there.
  void tell_all(const Refusal&);
  void mark_as_refused(const Refusal&) const;
  [[noreturn]] void refuse_all(const std::string& sentence);
  void give_back_memory();

  const std::shared_ptr<Meeting> meeting_;
  const int rank_, ranks_;
  const ncclConfig_t config_;
  int device_ = 0;
  std::atomic<void*> memory_ = nullptr;
  std::vector<std::unique_ptr<ncclWindow_vidmem>> windows_;
  // Every exchange on a stream, and every one in a graph, has a copy.
  const std::shared_ptr<int> on_streams_ = std::make_shared<int>();
  const std::shared_ptr<int> in_graphs_ = std::make_shared<int>();

  std::atomic<bool> aborted_ = false, runs_ = false;
  mutable std::mutex mutex_;  // of what follows
  Step step_;
  std::thread::id caller_;
  bool was_asked_ = false;
  std::optional<Refusal> failure_;
};

// Communicators by their handles.
ncclComm_t add(std::shared_ptr<Communicator>);
std::shared_ptr<Communicator> find(ncclComm_t);  // throws if there is none
void remove(ncclComm_t);

// Says on standard error why a call was refused.
void print(const Error&);

// Those of this process that were not destroyed.
std::vector<std::shared_ptr<Communicator>> list_communicators();

const char* name_of(Function);

}  // namespace emulator::nccl
