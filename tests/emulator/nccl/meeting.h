#pragma once

// The file by which the ranks of a communicator meet: what each has called and run, and the bytes
// that it gives.  It has no name and no end but that of its processes: others open it by the number
// of the process that made it, and of its descriptor there.
//
// Every rank writes only what is its own, so that none is left locked by one that died.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "../execution.h"

namespace emulator::nccl {

constexpr int max_ranks = 64, max_communicators = 16;
constexpr uint64_t kept_calls = 4096;

// Where a file is found.
struct Place {
  int32_t process = 0, descriptor = -1;
  uint64_t nonce = 0;
};

enum class Function : int32_t { all_to_all, all_gather, split, register_window, send, receive };

// A call, as it must be the same on all ranks.
struct CallKey {
  Function function = {};
  int32_t type = 0;
  uint64_t count = 0;
  uint64_t window = 0, send = 0, receive = 0;  // the window's number, and offsets in it
  bool is_captured = false;
  bool operator==(const CallKey&) const = default;
};

struct Call {
  CallKey key;
  int32_t color = 0, order = 0;  // of a split
  Place place;                   // of a file for what comes of a split
  // The calls that the rank had made on each of its other communicators.
  struct Other {
    uint64_t communicator, calls;
  } others[max_communicators];
};

// What a rank says.
struct Member {
  std::atomic<int32_t> process;  // 0 before it came
  int32_t gpu;
  std::atomic<uint64_t> calls, begun, ended;  // begun, ended: exchanges that ran
  std::atomic<uint64_t> left;                 // 1 + those when it ended its communicator
  std::atomic<bool> was_refused;
  char why[400];
  Call call[kept_calls];
  uint64_t run[kept_calls];  // which call an exchange was
  // Groups of messages to each rank, and from each.
  std::atomic<uint64_t> given[max_ranks], taken[max_ranks];
};

class Meeting {
 public:
  static std::shared_ptr<Meeting> make();
  static std::shared_ptr<Meeting> open(const Place&);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const Place& place() const { return place_; }
  // Throws if another has this rank, or says another number of ranks.
  void join(int rank, int ranks, int gpu);
  Member& member(int rank) const;

  // To wait for others: take a turn, look whether they are there, and if not, wait for the next.
  uint32_t turn() const;
  void wait(uint32_t turn) const;  // no longer than 20 ms
  void tell() const;

  // The bytes that a rank gives all.
  void give(int rank, size_t offset, const void* from, size_t bytes) const;
  void take(int rank, size_t offset, void* to, size_t bytes) const;
  // Behind them, where it gives messages to one.
  static constexpr size_t mailbox_bytes = size_t{1} << 29;
  static size_t mailbox(int peer);

 private:
  struct Shared;
  Meeting(int file, Place);

  int file_;
  Place place_;
  Shared* shared_;
};

}  // namespace emulator::nccl
