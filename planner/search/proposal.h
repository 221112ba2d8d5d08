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

#include <optional>
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
  std::optional<Proposal> fastest(const ProposalLimits&) const;

  // The plan of a proposal.  When values leave and come back is chosen by the clock of its tape.
  Plan plan_of(const Proposal&) const;

  // Bytes per second of the link, each way; 0: no link.
  double link_rate() const { return link_rate_; }

 private:
  std::optional<Choice> with_sending(size_t limit, const std::vector<bool>& rows_allowed,
                                     size_t host_bytes, const std::vector<Sending>& ways) const;
  std::vector<double> prices() const;
  void return_bytes(Choice& begin) const;
  Choice beginning(const Sending&, double bytes, size_t limit) const;
  std::vector<OffloadCandidate> sent_values(const Choice&, IdTable<ValueId, int64_t>& rows) const;
  size_t least_with(size_t state_on_host) const;
  std::optional<Proposal> proposal(size_t state_on_host, const ProposalLimits&,
                                   const std::vector<Sending>& ways) const;

  const SearchedStep& step_;
  const MeasuredSegments& measured_;
  const Levers& levers_;
  std::vector<size_t> other_peaks_;  // by choice of rows, with all state on the device
  double link_rate_ = 0;
  double bytes_out_ = 0;          // that can leave in a micro-batch, and come back
  double bytes_before_loss_ = 0;  // that can leave before the loss runs
  std::vector<Sending> ways_;     // that are tried
};

}  // namespace spool
