#include "spool/planner/report/link_limit.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

namespace spool {
namespace {

// Seconds of the forward or the backward of a micro-batch.
struct Pass {
  double work = 0, updates = 0;  // of kernels
  EnumArray<TraceLane, double> homes = {}, values = {};

  void add(const Pass& copied_in) {
    homes[TraceLane::copy_in] += copied_in.homes[TraceLane::copy_in];
    values[TraceLane::copy_in] += copied_in.values[TraceLane::copy_in];
  }

  double growth() const {
    double most = 0;
    for (const TraceLane lane : {TraceLane::copy_out, TraceLane::copy_in}) {
      const double copies = homes[lane] - updates, more = work - values[lane];
      if (copies <= 0) continue;
      most = std::max(most, more > 0 ? copies / more : std::numeric_limits<double>::infinity());
    }
    return most;
  }
};

enum class In : uint8_t { forward, backward, update };

// What the kernel is a part of; `now` if it does not tell.
In part_of(const TraceContext& work, In now) {
  if (!work) return now;
  if (std::string_view(work.task) == "optimizer") return In::update;
  if (!work.op) return now;
  return std::string_view(work.task) == "forward" ? In::forward : In::backward;
}

bool is_copy(const TraceSpan& span) {
  const bool is_lane = span.lane == TraceLane::copy_out || span.lane == TraceLane::copy_in;
  return is_lane && span.activity == Activity::copy;
}

}  // namespace

double growth_that_hides_homes(const std::vector<TraceSpan>& step) {
  double most = 0;
  In now = In::forward;
  Pass pass, next;  // what is copied in behind the last kernel of a pass is for the next one
  const auto end_pass = [&] {
    if (now != In::update) most = std::max(most, pass.growth());
    pass = std::exchange(next, {});
  };
  for (const TraceSpan& span : step) {
    const bool is_kernel = span.lane == TraceLane::compute && span.activity == Activity::kernel;
    if (is_kernel) {  // the first of a pass tells that it begins
      const In part = part_of(span.context, now);
      part == now ? pass.add(std::exchange(next, {})) : end_pass();
      now = part;
      (span.context.op ? pass.work : pass.updates) += span.seconds();
    } else if (is_copy(span)) {
      Pass& of = span.lane == TraceLane::copy_in ? next : pass;
      (span.context.is_copy() ? of.values : of.homes)[span.lane] += span.seconds();
    }
  }
  end_pass();
  return most;
}

}  // namespace spool
