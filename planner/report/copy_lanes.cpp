#include "spool/planner/report/copy_lanes.h"

#include <algorithm>
#include <string_view>

#include "spool/planner/report/allocation_words.h"
#include "spool/planner/report/exposed_exchanges.h"
#include "spool/planner/report/report_clock.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

// Copies, work on a file and exchanges are shown, waits are not.
bool is_shown(const TraceSpan& span) {
  const bool lane = span.lane == TraceLane::copy_out || span.lane == TraceLane::copy_in ||
                    span.lane == TraceLane::exchange;
  return lane && (span.activity == Activity::copy || span.activity == Activity::host);
}

// Of a value whose allocation is not known, or of what lives on the host, such as "parameters in".
bool has_own_name(const TraceContext& work) {
  return work && !work.op && std::string_view(work.task) != "optimizer";
}

std::string name_of(const TraceSpan& span, const LoggedAllocation* original,
                    const AllocationWords& words) {
  if (span.lane == TraceLane::exchange) return span.name;
  if (!original) return has_own_name(span.context) ? span.context.task : "optimizer state";
  const auto [value, layer] = words.value(*original);
  const char* file = "";
  if (span.activity == Activity::host) {
    file = span.lane == TraceLane::copy_out ? ", to the disk" : ", from the disk";
  }
  return sentence(value, layer < 0 ? "" : sentence(" of layer ", layer), file);
}

// The parts of an exchange in these waits.
std::vector<std::pair<double, double>> exposed_parts(const TraceSpan& exchange,
                                                     const std::vector<Trace::Interval>& waits,
                                                     const ReportClock& clock) {
  std::vector<std::pair<double, double>> parts;
  for (const auto& [wait_begin, wait_end] : waits) {
    const double begin = std::max(wait_begin, exchange.begin),
                 end = std::min(wait_end, exchange.end);
    if (begin < end) parts.emplace_back(clock.ms(begin), clock.ms(end));
  }
  return parts;
}

std::vector<LaneCopy> all_copies(const RehearsedStep& step, const NamedNodes& nodes) {
  const AllocationWords words(nodes, step.allocations);
  const ReportClock clock(step);
  const std::vector<Trace::Interval> waits = waits_for_exchanges(step.trace);
  std::vector<LaneCopy> copies;
  for (const TraceSpan& span : step.trace) {
    if (!is_shown(span)) continue;
    const LoggedAllocation* original =
        span.context.is_copy() ? words.offloaded(span.context.node) : nullptr;
    copies.push_back({.lane = span.lane,
                      .name = name_of(span, original, words),
                      .begin = clock.ms(span.begin),
                      .end = clock.ms(span.end),
                      .bytes = span.bytes || !original ? span.bytes : original->bytes});
    if (span.lane == TraceLane::exchange) copies.back().exposed = exposed_parts(span, waits, clock);
  }
  return copies;
}

std::vector<LaneTotal> totals_of(const std::vector<LaneCopy>& copies) {
  std::vector<LaneTotal> totals;
  for (const LaneCopy& copy : copies) {
    auto total = std::ranges::find(totals, copy.lane, &LaneTotal::lane);
    if (total == totals.end()) total = totals.insert(total, {.lane = copy.lane});
    ++total->copies;
    total->bytes += copy.bytes;
    total->busy += copy.end - copy.begin;
    for (const auto& [begin, end] : copy.exposed) total->exposed += end - begin;
  }
  return totals;
}

}  // namespace

CopyLanes copy_lanes(const RehearsedStep& step, const NamedNodes& nodes, size_t max_copies) {
  CopyLanes lanes{.copies = all_copies(step, nodes)};
  lanes.totals = totals_of(lanes.copies);
  if (lanes.copies.size() > max_copies) {
    std::ranges::stable_sort(lanes.copies, std::ranges::greater{},
                             [](const LaneCopy& c) { return c.end - c.begin; });
    lanes.copies.resize(max_copies);
  }
  std::ranges::stable_sort(lanes.copies, {}, &LaneCopy::begin);
  return lanes;
}

}  // namespace spool
