#pragma once

// Proposes plans within a limit on live bytes, by what was measured: recomputation and the loss's
// chunk by the dynamic program, what is sent to the host (offload_ways.h), and the share of the
// optimizer's state that stays on the device.  A proposal is a promise of the model only; the
// search rehearses it.
//
// After the segments that send, the dynamic program has less room for what comes back for them;
// ways to send that leave it the same room share it.  It is run for those alone that could be
// faster than the fastest so far if what comes back took no room.
//
// The share of the state: each byte on the host costs a time that was measured, and buys a byte for
// the rest; the cheapest sum is found among a few shares, and then by golden sections about it.

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "spool/planner/search/offload_ways.h"

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
  // The same of some plan, with regions in chunks if they may be chosen: they have an evaluation in
  // chunks, too.
  std::vector<bool> rows_possible(size_t bytes);

  // The fastest within the limits; nothing if there is none.
  std::optional<Proposal> fastest(const ProposalLimits&);

  // Those that treat equal segments alike, and send and stream nothing, the fastest first.
  std::vector<Proposal> uniform() const;

  // The plan of a proposal.  When values leave and come back is chosen by the clock of its tape.
  Plan plan_of(const Proposal&) const;

  // Bytes per second of the link, each way; 0: no link.
  double link_rate() const { return ways_.link_rate(); }

 private:
  // The fastest choices of the segments after those that send.
  FastestChoices& choices_after(const Returning&, const std::vector<bool>& rows_allowed);
  std::optional<Choice> with_offloading(size_t state_on_host, const ProposalLimits&);
  Plan in_most_chunks() const;
  size_t min_with(size_t state_on_host) const;
  std::optional<Proposal> proposal(size_t state_on_host, const ProposalLimits&);

  const SearchedStep& step_;
  const MeasuredSegments& measured_;
  const Levers& levers_;
  // By choice of rows, with all state on the device; and with the most chunks, once asked for.
  std::vector<size_t> other_peaks_, other_peaks_in_chunks_;
  OffloadWays ways_;
  std::map<std::pair<std::vector<bool>, Returning>, FastestChoices> choices_;
};

// Rehearses and lays out proposals, each once.  What comes of a proposal depends on it alone, so
// that a plan does not depend on what was asked before.
class Trials {
 public:
  // The arguments must outlive it.
  Trials(const SearchedStep& step, const MeasuredSegments& measured, const Proposer& proposer)
      : step_(step), measured_(measured), proposer_(proposer) {}

  // The plan of a proposal and what it takes.  If more than so many bytes are live, it is not laid
  // out, and its peak is these bytes.
  const FoundPlan& plan_of(const Proposal&, size_t bytes);

  int rehearsals() const { return rehearsals_; }

 private:
  struct Trial {
    Proposal proposal;
    FoundPlan found = {};
    std::optional<RehearsedStep> rehearsed = {};  // until it is laid out
    size_t other_peak = 0;
  };
  Trial& begin(const Proposal&);
  void assign_offsets(Trial&);

  const SearchedStep& step_;
  const MeasuredSegments& measured_;
  const Proposer& proposer_;
  std::deque<Trial> all_;
  int rehearsals_ = 0;
};

}  // namespace spool
