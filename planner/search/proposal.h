#pragma once

// Proposes plans within a limit on live bytes, by what was measured: recomputation and the loss's
// chunk by the dynamic program, what is sent to the host, and the share of the optimizer's state
// that stays on the device.  A proposal is a promise of the model only; the search rehearses it.
//
// What is sent: copies cost nothing while the device computes, so bytes are sent as far as they can
// leave until backward begins and come back after it; smaller parts of these are tried, too.  They
// are the values of the first segments, which are made first and needed last.  At a price a byte,
// each of these segments has the option that is cheapest in seconds and bytes to be sent; the
// prices between which such an option changes are tried.
//
// The share of the state: each byte on the host costs a time that was measured, and buys a byte for
// the rest; the cheapest sum is found by golden sections.

#include <compare>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "spool/planner/offload_schedule.h"
#include "spool/planner/search/dynamic_program.h"

namespace spool {

struct Proposal {
  Choice choice = {};
  size_t state_on_host = 0;  // bytes of the device that streaming the optimizer's state saves
  double seconds = 0;        // of a step
  bool operator==(const Proposal&) const = default;
};

// Bytes that a proposal has.
struct ProposalLimits {
  size_t step = 0;  // of the device, live in a step
  size_t run = 0;   // of the device, for what else the run does
  size_t host = 0;
};

class Proposer {
 public:
  // The arguments must outlive it.
  Proposer(const SearchedStep&, const MeasuredSegments&, const Levers&);

  // Which choices of rows leave room for what else the run does, within so many bytes.
  std::vector<bool> rows_allowed(size_t bytes) const;

  // The fastest within the limits; nothing if there is none.
  std::optional<Proposal> fastest(const ProposalLimits&);

  // The plan of a proposal.  When values leave and come back is chosen by the clock of its tape.
  Plan plan_of(const Proposal&) const;

  // Bytes per second of the link, each way; 0: no link.
  double link_rate() const { return link_rate_; }

 private:
  // What is live besides the segments that send nothing, in parts: when copies back begin, counted
  // from the begin of backward, and the bytes that leave while the loss runs.
  struct Returning {
    static constexpr int parts = 2048;  // of backward, and of what can leave
    int begin = parts, late = 0;
    auto operator<=>(const Returning&) const = default;
  };
  // What an option can send.
  struct Sendable {
    struct Value {
      ValueId id = -1;
      double bytes = 0, saved = 0;  // seconds since forward began
      int64_t rows = 1;
    };
    std::vector<Value> values = {};
    double bytes = 0;  // of all
  };
  // The first rows of a value.
  struct SentRows {
    const Sendable::Value* value = nullptr;
    int64_t rows = 0;
    double bytes = 0;
    bool is_whole() const { return rows == value->rows; }
  };
  // The first segments, which send.
  struct Beginning {
    Choice choice = {};
    std::vector<const Sendable*> sendable = {};
    int64_t kept = 0;  // bytes live when the next segment begins
    int64_t most = 0;  // bytes live in these segments
    Returning after = {};
  };
  void list_sendable();
  std::vector<double> prices() const;
  static std::vector<SentRows> sent_rows(const Sendable&, double bytes);
  double late_bytes(const Beginning&) const;
  Beginning beginning(const Sending&, double bytes, size_t limit) const;
  void return_bytes(Beginning&) const;
  FastestChoices& choices_after(const Beginning&, const std::vector<bool>& rows_allowed);
  std::vector<const Beginning*> beginnings_within(size_t state_on_host, const ProposalLimits&,
                                                  std::deque<Beginning>& limited) const;
  std::optional<Choice> with_sending(size_t state_on_host, const ProposalLimits&);
  std::vector<OffloadCandidate> sent_values(const Choice&, IdTable<ValueId, int64_t>& rows) const;
  size_t least_with(size_t state_on_host) const;
  std::optional<Proposal> proposal(size_t state_on_host, const ProposalLimits&);

  const SearchedStep& step_;
  const MeasuredSegments& measured_;
  const Levers& levers_;
  std::vector<size_t> other_peaks_;  // by choice of rows, with all state on the device
  double link_rate_ = 0;
  double bytes_out_ = 0;          // that can leave in a micro-batch, and come back
  std::vector<std::vector<Sendable>> sendable_;  // of each segment and its options
  std::vector<Beginning> beginnings_;  // that are tried
  std::map<std::pair<std::vector<bool>, Returning>, FastestChoices> choices_;
};

}  // namespace spool
