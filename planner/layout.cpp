#include "spool/planner/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace spool {
namespace {

struct Placed {
  size_t begin = 0, end = 0;    // bytes
  size_t birth = 0, death = 0;  // of the lifetime
};

// By where they begin.  Returns the end of what was added, or nothing beyond `limit`.
class FirstFit {
 public:
  size_t add(const Lifetime& l) {
    size_t at = 0;
    for (const Placed& p : placed_) {
      if (p.begin >= at + l.bytes) break;
      if (p.birth < l.death && l.birth < p.death) at = std::max(at, p.end);
    }
    const Placed added{.begin = at, .end = at + l.bytes, .birth = l.birth, .death = l.death};
    placed_.insert(std::ranges::upper_bound(placed_, at, {}, &Placed::begin), added);
    return at;
  }

 private:
  std::vector<Placed> placed_;
};

// Larger goes first; then who is born first.
using Key = double (*)(const Lifetime&);
constexpr Key orders[] = {
    [](const Lifetime& l) { return double(l.bytes) * double(l.death - l.birth); },
    [](const Lifetime& l) { return double(l.bytes); },
    [](const Lifetime& l) { return double(l.death - l.birth); },
    [](const Lifetime& l) { return -double(l.birth); },
    [](const Lifetime& l) { return double(l.death); },
};

std::vector<size_t> by(Key key, const std::vector<Lifetime>& all) {
  std::vector<double> keys;
  for (const Lifetime& l : all) keys.push_back(key(l));
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return keys[i]; });
  return order;
}

}  // namespace

size_t most_live(const Lifetimes& lifetimes) {
  std::vector<std::pair<size_t, int64_t>> events;
  for (const Lifetime& l : lifetimes.all) {
    events.emplace_back(l.birth, static_cast<int64_t>(l.bytes));
    events.emplace_back(l.death, -static_cast<int64_t>(l.bytes));
  }
  std::ranges::sort(events);
  int64_t live = 0, most = 0;
  for (const auto& [when, change] : events) most = std::max(most, live += change);
  return static_cast<size_t>(most);
}

Layout lay_out(Lifetimes lifetimes) {
  const std::vector<Lifetime>& all = lifetimes.all;
  Layout best{.bytes = std::numeric_limits<size_t>::max(), .live = most_live(lifetimes)};
  for (const Key key : orders) {
    if (best.bytes == best.live) break;
    FirstFit fit;
    std::vector<size_t> offsets(all.size());
    size_t bytes = 0;
    for (const size_t i : by(key, all)) {
      offsets[i] = fit.add(all[i]);
      bytes = std::max(bytes, offsets[i] + all[i].bytes);
    }
    if (bytes >= best.bytes) continue;
    best.bytes = bytes;
    best.offsets = std::move(offsets);
  }
  best.lifetimes = std::move(lifetimes);
  return best;
}

}  // namespace spool
