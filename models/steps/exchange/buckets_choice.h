#pragma once

// Chooses how many buckets of gradients ranks exchange at a time beside backward: of 2, 3, 4 and 8,
// the fewest that are within 0.5 % of the fastest, of those that fit.  Each is rehearsed with a
// plan of its own, as what is in flight takes memory that values could have; a number that, even
// if it took none, would be neither faster than fewer ones nor near the fastest is passed over.  It
// changes no bits.

#include <functional>

#include "spool/models/steps/run_request.h"

namespace spool {

inline constexpr int fewest_buckets_in_flight = 2;

inline int buckets_in_flight(const Plan& plan) {
  return plan.buckets_in_flight > 0 ? plan.buckets_in_flight : fewest_buckets_in_flight;
}

// Plans a run with plan(buckets): once, unless it has several ranks and the request leaves the
// number open.  Of a given plan it is that plan's.
PlannedSteps plan_buckets(const RunSteps&, const RunRequest&, const Machine&,
                          const std::function<PlannedSteps(int buckets)>& plan);

}  // namespace spool
