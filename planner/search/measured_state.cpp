#include "spool/planner/search/measured_state.h"

namespace spool {

// Between two shares the seconds are on the line through those below or on that through those
// above, whichever is higher: copies are hidden by the update of what stays, up to some share.
double streaming_seconds(const MeasuredState& state, double bytes) {
  const auto& all = state.shares;
  if (bytes <= 0 || all.empty()) return 0;
  const auto after = static_cast<size_t>(
      std::ranges::lower_bound(all, bytes, {}, &MeasuredState::Share::bytes) - all.begin());
  if (after == 0) return all.front().seconds;
  if (after == all.size()) return all.back().seconds;
  const auto line = [&](size_t second) {
    const MeasuredState::Share &a = all[second - 1], &b = all[second];
    return a.seconds + (bytes - a.bytes) / (b.bytes - a.bytes) * (b.seconds - a.seconds);
  };
  const double below = after > 1 ? line(after - 1) : all[0].seconds;
  const double above = after + 1 < all.size() ? line(after + 1) : line(after);
  return std::min(std::max(below, above), line(after));
}

}  // namespace spool
