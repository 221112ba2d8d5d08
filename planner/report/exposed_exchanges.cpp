#include "spool/planner/report/exposed_exchanges.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spool {
namespace {

struct WorkEnd {
  double time = 0;
  bool is_exchange = false;
};

// Of the work that compute can wait for.
std::vector<WorkEnd> ends_beside_compute(const std::vector<TraceSpan>& spans) {
  std::vector<WorkEnd> ends;
  for (const TraceSpan& span : spans) {
    const bool is_beside = span.lane != TraceLane::compute && span.lane != TraceLane::host;
    if (!is_beside || span.activity == Activity::wait) continue;
    ends.push_back({.time = span.end, .is_exchange = span.lane == TraceLane::exchange});
  }
  return ends;
}

// Whether the work whose end is nearest, of several such any, is an exchange.
bool is_exchange_at(const std::vector<WorkEnd>& ends, double time) {
  const auto nearest = std::ranges::min_element(ends, {}, [&](const WorkEnd& end) {
    return std::pair(std::abs(end.time - time), !end.is_exchange);
  });
  return nearest != ends.end() && nearest->is_exchange;
}

}  // namespace

std::vector<Trace::Interval> waits_for_exchanges(const std::vector<TraceSpan>& spans) {
  const std::vector<WorkEnd> ends = ends_beside_compute(spans);
  if (std::ranges::none_of(ends, &WorkEnd::is_exchange)) return {};
  std::vector<Trace::Interval> waits;
  double computed = 0, exchanged = 0;  // until then
  for (const TraceSpan& span : spans) {
    const bool is_wait = span.activity == Activity::wait;
    if (span.lane == TraceLane::exchange && !is_wait) exchanged = std::max(exchanged, span.end);
    if (span.lane != TraceLane::compute) continue;
    computed = std::max(computed, span.end);
    if (is_wait && is_exchange_at(ends, span.end)) waits.emplace_back(span.begin, span.end);
  }
  if (exchanged > computed) waits.emplace_back(computed, exchanged);
  return waits;
}

double exposed_exchange_seconds(const std::vector<TraceSpan>& spans) {
  double sum = 0;
  for (const auto& [begin, end] : waits_for_exchanges(spans)) sum += end - begin;
  return sum;
}

}  // namespace spool
