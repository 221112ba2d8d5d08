#pragma once

// Chooses what may be offloaded: options for the first segments of a choice, whose values are
// computed first and needed last.
//
// Copies cost nothing while the device computes, so as many bytes are offloaded as can leave until
// backward begins and come back after it; smaller parts of these are tried, too.  At a price per
// byte, each offloading segment has the option that is cheapest in seconds and offloaded bytes; the
// prices between which such an option changes are tried.

#include <compare>
#include <deque>
#include <map>
#include <vector>

#include "spool/planner/offload_schedule.h"
#include "spool/planner/search/dynamic_program.h"

namespace spool {

// How long copies hold memory while later segments run, in parts, rounded up: when copies out end,
// counted from the begin of forward; the bytes not yet copied out when the loss begins; and when
// copies back begin, counted from the begin of backward.
struct Returning {
  static constexpr int parts = 512;  // of forward, of what can leave, of the others' backward
  int out = 0, late = 0, begin = parts;
  auto operator<=>(const Returning&) const = default;
};

// The values that an option can offload.
struct Offloadable {
  struct Value {
    ValueId id = -1;
    double bytes = 0, saved = 0;  // saved: seconds since forward began
    int64_t rows = 1;
  };
  std::vector<Value> values = {};
  double bytes = 0;  // the sum
};

// The options of the first segments, and what they offload.
struct Beginning {
  // The copy of a value, or of its first rows, in the order of forward.
  struct Copy {
    size_t segment = 0;
    double saved = 0, bytes = 0;  // saved: seconds since forward began
  };
  Choice choice = {};
  std::vector<Copy> copies = {};
  int64_t kept = 0;      // bytes live when the next segment begins
  int64_t max = 0;       // bytes live in these segments
  double offloaded = 0;  // bytes
  Returning returning = {};
};

class OffloadWays {
 public:
  // The arguments must outlive it.
  OffloadWays(const SearchedStep&, const MeasuredSegments&, const Levers&);

  // All ways that fit into these bytes; those reduced to fit are built in `limited`.
  std::vector<const Beginning*> within(size_t limit, size_t host_bytes,
                                       std::deque<Beginning>& limited) const;

  // Bytes live for the offloading segments while each other segment runs.
  OthersBytes live_of_others(const Returning&) const;

  // The values that a choice offloads, and their rows; -1: all.
  std::vector<OffloadCandidate> values(const Choice&, IdTable<ValueId, int64_t>& rows) const;

  // Bytes per second of the link, each way; 0: no link.
  double link_rate() const { return link_rate_; }
  // The most bytes that a way offloads.
  double max_bytes() const { return bytes_out_; }

 private:
  void list_offloadable();
  double max_offloadable() const;  // bytes
  std::vector<double> prices() const;
  // `others`: bytes assumed to be live for other segments.
  Beginning beginning(const OffloadWay&, double bytes, size_t limit,
                      const OthersBytes& others) const;
  Beginning limited_beginning(const OffloadWay&, double bytes, size_t limit) const;
  // The segment's cheapest option that fits; the number of options if there is none.
  size_t cheapest(size_t segment, double price, int64_t room, const OthersBytes& others) const;
  // Offloads at most `bytes` bytes of the next segment; returns how many.
  double offload(Beginning&, const Offloadable&, double bytes) const;
  void time_copies_out(Beginning&) const;
  void time_copies_back(Beginning&) const;
  void measure_forward();

  const SearchedStep& step_;
  const MeasuredSegments& measured_;
  double link_rate_ = 0;
  double bytes_out_ = 0;           // that can leave in a micro-batch, and come back
  double backward_ = 0;            // seconds, if all is kept
  std::vector<double> ends_ = {};  // of each segment's backward, seconds since backward began
  std::vector<double> forward_begins_ = {};  // of each segment, seconds since forward began
  std::vector<std::vector<Offloadable>> offloadable_ = {};  // by segment, then by option
  // By price, then by segment: its options, the cheapest first.
  mutable std::map<double, std::vector<std::vector<size_t>>> cheapest_first_ = {};
  std::vector<Beginning> all_ = {};
};

}  // namespace spool
