#pragma once

// Chooses how many buckets of gradients ranks exchange at a time beside backward: of 2, 3, 4 and 8,
// the fewest that are within 0.5 % of the fastest.  What is in flight takes memory that values
// could have, so a plan is made for each number that is tried: first for the fewest with which a
// step that keeps all but what is gathered is nearly fastest by the nominal clock, or else for
// fewer that fit, and then for those with which this plan would be by the machine's.  It changes no
// bits.

#include <functional>

#include "spool/models/steps/run_request.h"

namespace spool {

inline constexpr int fewest_buckets_in_flight = 2, most_buckets_in_flight = 8;

inline int buckets_in_flight(const Plan& plan) {
  return plan.buckets_in_flight > 0 ? plan.buckets_in_flight : fewest_buckets_in_flight;
}

// Plans a run with plan(buckets): once, unless it has several ranks and the request leaves the
// number open.  Of a given plan it is that plan's.
PlannedSteps plan_buckets(const RunSteps&, const RunRequest&, const Machine&,
                          const std::function<PlannedSteps(int buckets)>& plan);

}  // namespace spool
