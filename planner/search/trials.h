// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Rehearses and lays out proposals, each once.  What comes of a proposal depends on it alone, so
// that a plan does not depend on what was asked before.

#include <deque>

#include "spool/planner/search/proposal.h"

namespace spool {

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
  void lay_out(Trial&);

  const SearchedStep& step_;
  const MeasuredSegments& measured_;
  const Proposer& proposer_;
  std::deque<Trial> all_;
  int rehearsals_ = 0;
};

}  // namespace spool
