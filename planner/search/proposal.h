#pragma once

// Proposes plans within a limit on live bytes, from measured costs: recomputation and the loss's
// chunk by the dynamic program, what is offloaded (offload_ways.h), and the share of the
// optimizer's state on the device.  A proposal is what the cost model promises; the search
// rehearses it.
//
// What comes back for offloading segments leaves the dynamic program less room after them.  Ways
// that leave it the same room share its result, and it runs only for ways that would be the fastest
// so far if what comes back took no room.
//
// State on the host has a measured cost in seconds and saves device bytes; the cheapest sum is
// found among a few shares, and then by golden sections around the best.

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
  double cost = 0;           // seconds, and the price of its bytes on the host
  bool operator==(const Proposal&) const = default;
};

// Available bytes.
struct ProposalLimits {
  size_t step = 0;  // of the device, live in a step
  size_t run = 0;   // of the device, for the rest of the run
  size_t host = 0;
};

class Proposer {
 public:
  // The arguments must outlive it.
  Proposer(const SearchedStep&, const MeasuredSegments&, const Levers&);

  // The fastest proposal within the limits; nothing if there is none.
  std::optional<Proposal> fastest(const ProposalLimits&);
  // The same of a family, an index into families(), with this much state on the host.
  std::optional<Proposal> fastest_of(size_t family, size_t state_on_host, const ProposalLimits&);
  const std::vector<Family>& families() const { return families_; }

  // The proposals that treat equal segments alike and neither offload nor stream, fastest first.
  std::vector<Proposal> uniform() const;
  // Uniform proposals for which the limit has room, but not for those with the next choice of more
  // rows of the loss.  With rows between the two they would take about fewer than `seconds`; the
  // fastest first.
  std::vector<Proposal> with_room_for_more_rows(size_t limit, double seconds) const;
  // Uniform proposals within the limit, with as many of the last segments as it has room for
  // keeping all; the fastest first.
  std::vector<Proposal> alike_at_first(size_t limit) const;

  // Bytes live outside of all segments with this much state on the host.
  size_t min_with(size_t state_on_host) const;

  // The plan of a proposal.  The clock of its tape decides when values leave and come back.
  Plan plan_of(const Proposal&) const;

  // Bytes per second of the link, each way; 0: no link.
  double link_rate() const { return ways_.link_rate(); }

 private:
  // The fastest choices of the segments after those that offload.
  FastestChoices& choices_after(const Returning&);
  std::optional<Choice> with_offloading(size_t state_on_host, const ProposalLimits&,
                                        double& offloaded);
  std::optional<Proposal> proposal(size_t state_on_host, const ProposalLimits&);
  std::optional<Proposal> fastest_of_family(const ProposalLimits&);

  const SearchedStep& step_;
  const MeasuredSegments& measured_;
  const Levers& levers_;
  size_t other_peak_ = 0;             // with all state on the device
  double seconds_per_host_byte_ = 0;  // the price of a byte on the host
  OffloadWays ways_;
  std::vector<Family> families_;
  size_t family_ = 0;  // of the proposals that are made
  std::map<std::pair<size_t, Returning>, FastestChoices> choices_;
};

}  // namespace spool
