#pragma once

// What may be sent to the host: beginnings of a choice, whose segments send.
//
// Copies cost nothing while the device computes, so bytes are sent as far as they can leave until
// backward begins and come back after it; smaller parts of these are tried, too.  They are the
// values of the first segments, which are made first and needed last.  At a price a byte, each of
// these segments has the option that is cheapest in seconds and bytes to be sent; the prices
// between which such an option changes are tried.

#include <compare>
#include <deque>
#include <vector>

#include "spool/planner/offload_schedule.h"
#include "spool/planner/search/dynamic_program.h"

namespace spool {

// What is live for the segments that send while those after them run, in parts, rounded up: when
// copies out end, counted from the begin of forward, the bytes whose copies have not ended when the
// loss begins, and when copies back begin, counted from the begin of backward.
struct Returning {
  static constexpr int parts = 2048;  // of forward, of what can leave, of the others' backward
  int out = 0, late = 0, begin = parts;
  auto operator<=>(const Returning&) const = default;
};

// What an option can send.
struct Offloadable {
  struct Value {
    ValueId id = -1;
    double bytes = 0, saved = 0;  // seconds since forward began
    int64_t rows = 1;
  };
  std::vector<Value> values = {};
  double bytes = 0;  // of all
};

// The options of the first segments, and what they send.
struct Beginning {
  Choice choice = {};
  std::vector<const Offloadable*> offloadable = {};
  int64_t kept = 0;  // bytes live when the next segment begins
  int64_t max = 0;   // bytes live in these segments
  Returning returning = {};
};

class OffloadWays {
 public:
  // The arguments must outlive it.
  OffloadWays(const SearchedStep&, const MeasuredSegments&, const Levers&);

  // All within so many bytes of the device and of the host; `limited` has what is made for them.
  std::vector<const Beginning*> within(size_t limit, size_t host_bytes,
                                       std::deque<Beginning>& limited) const;

  // What is live for others while each segment that sends nothing runs.
  OthersBytes live_of_others(const Returning&) const;

  // The values that a choice sends, and their rows; -1: all.
  std::vector<OffloadCandidate> values(const Choice&, IdTable<ValueId, int64_t>& rows) const;

  // Bytes per second of the link, each way; 0: no link.
  double link_rate() const { return link_rate_; }

 private:
  struct CopyOut {
    size_t segment = 0;
    double end = 0, bytes = 0;  // seconds since forward began
  };
  void list_offloadable();
  double max_offloadable() const;  // bytes
  std::vector<double> prices() const;
  Beginning beginning(const OffloadWay&, double bytes, size_t limit) const;
  // The segment's cheapest option that fits; the number of options if there is none.
  size_t cheapest(size_t segment, double price, int64_t room) const;
  double offload(const Offloadable&, double bytes, const OffloadWay&, double& seconds) const;
  void let_leave(Beginning&) const;
  void return_to_first(Beginning&) const;
  std::vector<CopyOut> copies_out(const Beginning&) const;
  void measure_forward();

  const SearchedStep& step_;
  const MeasuredSegments& measured_;
  double link_rate_ = 0;
  double bytes_out_ = 0;           // that can leave in a micro-batch, and come back
  double backward_ = 0;            // seconds, if all is kept
  std::vector<double> ends_ = {};  // of each segment's backward, seconds since backward began
  std::vector<double> forward_begins_ = {};  // of each segment, seconds since forward began
  std::vector<std::vector<Offloadable>> offloadable_ = {};  // of each segment and its options
  std::vector<Beginning> all_ = {};
};

}  // namespace spool
