#pragma once

// A communicator moves bytes between ranks, the members of a group that train one model together,
// each with a stream, an arena and a tape of its own.  It adds nothing: sums are a kernel's
// (kernels/sum_ranks.h), in the order of the ranks, so no bit depends on how bytes travel.
//
// All ranks of a group call exchange(), move_now() and gather() alike, in the same order.  The i-th
// message to a rank is the i-th that it takes from the sender, of the same size.  A rank that comes
// to another exchange, or with messages of other sizes, gets an error.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/device.h"
#include "spool/runtime/ranks/mesh.h"

namespace spool {

class Stream;
struct Machine;

struct Message {
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  size_t at = 0;  // where it begins in the piece of an exchange
};
using Messages = std::vector<Message>;
// Of all messages but those of a rank to itself.
size_t bytes_to_others(const Messages&, int rank);

// What the others get of a rank: each a piece of its own, or all the same one; or messages between
// some of the ranks, of any sizes, which go from where they lie to where they are wanted.
enum class Pattern : uint8_t { all_to_all, all_gather, messages };

// All messages between two ranks are one piece, of at most so many bytes on all ranks.  `messages`
// are in no pieces, and need no workspace.
struct Exchange {
  const char* name = "";  // never freed
  Pattern pattern = Pattern::all_to_all;
  Messages out = {}, in = {};
  size_t piece = 0;
  std::byte* workspace = nullptr;  // memory of the device, as much as workspace_bytes() says
  // Of all_to_all: memory of the device for a piece of each rank, by rank, where `in` lie.
  std::byte* landing = nullptr;
};

// Who tells the user that ranks are lost: of ranks that are processes, the lowest that is left.
enum class RankLoss { another_tells, disappeared, absent };

// Another rank ended, or did not come to an exchange.
class RankEnded final : public Error {
 public:
  explicit RankEnded(const std::string& why, RankLoss loss = RankLoss::another_tells)
      : Error(ErrorKind::device, why), loss_(loss) {}
  // What this rank is to tell of those that are lost, if it is the one that tells.
  RankLoss loss() const { return loss_; }

 private:
  RankLoss loss_;
};

// The host work of a rehearsed exchange, which does nothing; its span in a trace has the bytes.
struct RehearsedExchange {
  double sent = 0;  // bytes given to others
  void operator()() const {}
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual const char* kind() const = 0;               // "threads", "sockets", "mpi", "nccl", "meta"
  virtual bool are_threads() const { return false; }  // of one process

  // Whether exchange() is of this device's memory.
  virtual bool moves_memory_of(const Device& d) const {
    return size_ == 1 || d.type != DeviceType::cuda;
  }
  // Bytes of the device's memory that exchange() needs beside its messages; the caller allocates
  // them, and the queue's next exchange may have the same.
  virtual size_t workspace_bytes(size_t /*piece*/) const { return 0; }
  // Bytes of the device that the backend itself takes, measured; 0: none.
  virtual size_t taken_bytes() const { return 0; }
  // Enqueues on the queue: sends `out` and takes `in`.  All exchanges of a communicator are on one
  // queue.
  void exchange(Exchange, Stream& queue);
  // Prepares exchanges of the pattern `messages` between all ranks, which may take memory of the
  // device; all ranks call it.  Otherwise the first of them does that.
  virtual void connect() {}
  // Prepares exchanges of memory of the stream's arena, on its side streams; all ranks call it
  // before the first.  What it returns ends before the stream, which fails where they fail.
  virtual std::shared_ptr<void> open(Stream&) { return nullptr; }
  // The same of host memory, now.  Not while an exchange is enqueued.  It waits for all ranks
  // however long one works on something else; exchange() waits for the timeout (timeout.h).
  void move_now(const char* name, const Messages& out, const Messages& in);
  // What each rank gives, by rank; waits for all of them.  Not while an exchange is enqueued.
  std::vector<std::string> gather(const char* name, const std::string& own);
  // Tells the others why this rank ends, so that they end, too, instead of waiting for it: their
  // exchanges throw RankEnded, "rank 2: ...".
  void fail(const std::string& why) {
    end_others(rank_ == 0 ? why : "rank " + std::to_string(rank_) + ": " + why);
  }

  // Says what this rank does from now on, such as "step 12", for the sentence that names it if it
  // disappears.
  virtual void is_doing(const std::string& /*what*/) {}
  // Whether a lower rank, too, ends by an error of its own, which that one tells; waits a second.
  virtual bool has_lower_rank_failed() { return false; }

  // An all-to-all exchange by which the link of devices is measured: this rank gives the others so
  // many bytes of its device, and waits for it.  Empty where exchanges are of host memory.
  virtual std::function<void()> measured_exchange(size_t /*bytes*/) { return {}; }

  // For a backend that waits for others on a device: throws RankEnded if another rank has ended, or
  // if this one has waited longer at an exchange than the timeout.  Another thread may call it.
  virtual void check_others(const char* exchange, double waited);

  // Bytes given to others by exchange() so far, and the seconds that those took, with what this
  // rank waited for others in them.  Of exchanges on a device, when they are done.
  virtual size_t sent() const { return sent_; }
  virtual double seconds() const { return seconds_; }
  virtual void forget_sent() { sent_ = 0; }
  // Whether what is enqueued from here on is a part of them, as it is at first.
  void count_exchanges(bool on) { are_counted_ = on; }
  // A hash of the exchanges so far: their names, and the numbers of their bytes.
  uint64_t list() const { return list_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  // Sends `out` and takes `in`, and returns when the memory of both is free.  Waits at most so many
  // seconds for a rank that does not come.  Called by one thread at a time.
  virtual void move(const char* name, const Messages& out, const Messages& in, double timeout) = 0;
  virtual void end_others(const std::string& /*why*/) {}
  static void end_others_of(Communicator& other, const std::string& why) { other.end_others(why); }
  // Enqueues an exchange; by default, move() as work of the host.
  virtual void enqueue(Exchange, Stream& queue);

 private:
  int rank_, size_;
  size_t sent_ = 0;
  bool are_counted_ = true;
  std::atomic<double> seconds_ = 0;
  uint64_t list_ = 0;
};

// While it exists, what these ranks exchange is not a part of their steps; null: nothing.
class UncountedExchanges {
 public:
  explicit UncountedExchanges(Communicator* ranks) : ranks_(ranks) { count(false); }
  ~UncountedExchanges() { count(true); }
  UncountedExchanges(const UncountedExchanges&) = delete;
  UncountedExchanges& operator=(const UncountedExchanges&) = delete;

 private:
  void count(bool on) const {
    if (ranks_) ranks_->count_exchanges(on);
  }
  Communicator* ranks_;
};

// Of a MetaStream: exchanges take the time of the mesh's links, and those of ranks on GPUs the
// workspace and the time in which messages are packed (packing.h).
std::shared_ptr<Communicator> rehearsed_ranks(const Machine&);
// Threads of this process, one for each rank; 0 or more of them.
std::vector<std::shared_ptr<Communicator>> ranks_of_threads(int size);

// How these ranks rehearse; none: one stream computes alone.
inline Mesh mesh_of(const Communicator* ranks) {
  return ranks ? Mesh{.ranks = ranks->size(), .rank = ranks->rank()} : Mesh{};
}

}  // namespace spool
