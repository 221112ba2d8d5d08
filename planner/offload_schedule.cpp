#include "spool/planner/offload_schedule.h"

#include <algorithm>
#include <utility>

namespace spool {
namespace {

struct PlannedTransfer {
  Offload offload;
  double saved = 0, read = 0;  // seconds: when the value is saved, and first read by backward
  double out = 0, in = 0;      // seconds of its copies
  size_t order = 0;            // of those saved at once
};

// When each node began, seconds.
struct Clock {
  IdTable<NodeId, double> forward, backward;
};

std::vector<PlannedTransfer> transfers_of(const std::vector<OffloadCandidate>& candidates,
                                          const Survey& survey, const Clock& clock,
                                          const Machine& machine, OffloadTarget target) {
  // A transfer to a disk passes through the host: one copy after the other.
  const double disk = target == OffloadTarget::disk ? 1 / machine.disk_bytes_per_second : 0;
  const double out = 1 / machine.to_host_bytes_per_second + disk;  // seconds a byte
  const double in = 1 / machine.from_host_bytes_per_second + disk;
  IdTable<ValueId, size_t> order(survey.values.size());
  for (size_t i = survey.saves.size(); i-- > 0;) order[survey.saves[i].value] = i;
  std::vector<PlannedTransfer> transfers;
  for (const OffloadCandidate& c : candidates) {
    const auto [bytes, saver, reader] = survey.values.value_or(c.value, {});
    if (reader < 0) continue;  // never read in backward, so never saved
    const NodeId next = saver + 1;
    transfers.push_back(
        {.offload = {.value = c.value, .target = target},
         .saved = clock.forward.contains(next) ? clock.forward[next] : clock.backward.back(),
         .read = clock.backward[reader],
         .out = static_cast<double>(c.bytes) * out,
         .in = static_cast<double>(c.bytes) * in,
         .order = order[c.value]});
  }
  return transfers;
}

// Copies out run one after the other, in the order in which the tape saves; each value is released
// before the first node that begins after its copy ends, or before backward.  A value whose copy
// would end too late stays.
void place_releases(std::vector<PlannedTransfer>& transfers, const Clock& clock, CopiesEnd until) {
  std::ranges::sort(transfers, {},
                    [](const PlannedTransfer& t) { return std::pair(t.saved, t.order); });
  double link_free = 0;
  std::erase_if(transfers, [&](PlannedTransfer& t) {
    const double end = std::max(link_free, t.saved) + t.out;
    const auto node = std::ranges::lower_bound(clock.forward, end);
    const bool in_time = until == CopiesEnd::before_backward && end <= clock.backward.back();
    if (node == clock.forward.end() && !in_time) return true;
    link_free = end;
    t.offload.release = static_cast<NodeId>(node - clock.forward.begin());
    return false;
  });
}

// Copies back run one after the other, too, in the order of need: each begins at the latest node
// from which it and later copies arrive in time even if each takes fetch_caution times as long.
void place_fetches(std::vector<PlannedTransfer>& transfers, const Clock& clock) {
  std::ranges::sort(transfers, std::ranges::greater{}, &PlannedTransfer::read);
  double next_begins = clock.backward.front() + 1e9;
  for (PlannedTransfer& t : transfers) {
    next_begins = std::min(next_begins, t.read) - fetch_caution * t.in;
    // Backward visits the nodes from the last to the first: their times fall with their ids.
    const auto at = std::ranges::lower_bound(clock.backward, next_begins, std::ranges::greater{});
    const auto node = static_cast<NodeId>(at - clock.backward.begin());
    t.offload.fetch = std::min(node, clock.backward.next_id() - 1);
  }
}

}  // namespace

std::vector<Offload> schedule_offloads(const std::vector<OffloadCandidate>& candidates,
                                       const Survey& survey, const Machine& machine,
                                       OffloadTarget target, CopiesEnd until) {
  const Clock clock{.forward = survey.begins(Phase::forward),
                    .backward = survey.begins(Phase::backward)};
  std::vector<PlannedTransfer> transfers = transfers_of(candidates, survey, clock, machine, target);
  place_releases(transfers, clock, until);
  place_fetches(transfers, clock);
  std::ranges::sort(transfers, {}, [](const PlannedTransfer& t) { return t.offload.value; });
  std::vector<Offload> offloads;
  for (const PlannedTransfer& t : transfers) offloads.push_back(t.offload);
  return offloads;
}

}  // namespace spool
