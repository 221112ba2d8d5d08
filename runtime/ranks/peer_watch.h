#pragma once

// Ranks that are processes of one machine tell each other several times a second that they live and
// what they do, and at their end why they end.  A thread of each rank sends and reads that, so that
// it comes through while the rank computes.

#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/ranks/descriptor.h"

namespace spool {

class PeerWatch {
 public:
  // Connections by rank; this one's entry is empty.
  PeerWatch(int rank, std::vector<Descriptor> connections);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // What this rank does from now on, such as "step 12".
  void is_doing(const std::string& what);
  // Tells the others, once, why this rank ends.  Returns at once.
  void end(const std::string& why);
  // Throws if another rank has ended, what that one said.
  void throw_if_ended();
  // Tells the others, and throws, that these ranks are lost: "rank 2 disappeared in step 12, at the
  // exchange 'norms'".
  [[noreturn]] void throw_disappeared(int rank, const std::string& exchange);
  [[noreturn]] void throw_absent(const std::set<int>& ranks, const std::string& exchange,
                                 double seconds);
  // Seconds in which this process ran and nothing came from that rank.
  double silence(int rank);
  // Readable once a rank has ended; throw_if_ended() clears it.
  int bell() const { return *bell_read_; }
  // Whether a lower rank ends by an error of its own; waits at most so long for those that have not
  // ended.
  bool has_lower_rank_failed(double seconds);

 private:
  struct Peer {
    Descriptor connection;
    std::string heard, doing;
    std::string end, why;  // how it ended, a word of peer_watch.cpp
    std::set<int> lost;
    double silence = 0;
  };

  void run();
  void tell(const std::string& line);
  void tell_what_it_does();
  void read(Peer&);
  void take_line(Peer&, const std::string& line);
  bool is_lowest_without(const std::set<int>& lost) const;
  [[noreturn]] void throw_lost(std::string_view word, const std::set<int>& lost,
                               const std::string& why);

  std::mutex mutex_;
  std::condition_variable changed_;
  int rank_;
  std::vector<Peer> peers_;
  std::string doing_;
  double told_ = 0, began_ = 0;  // when it last said so, and when it began and said so at once
  bool has_told_end_ = false;
  std::string how_;  // this one ends, if it follows another: a word and the ranks that are lost
  Descriptor bell_read_, bell_write_, stop_read_, stop_write_;
  std::jthread thread_;
};

}  // namespace spool
