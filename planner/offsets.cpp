#include "spool/planner/offsets.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace spool {
namespace {

using Order = std::vector<size_t>;

struct PlacedBlock {
  size_t begin = 0, end = 0;  // bytes
  size_t birth = 0, death = 0;
};

// Places each block at the lowest offset that is free for its whole lifetime.
class FirstFit {
 public:
  size_t add(const Lifetime& l) {
    size_t at = 0;
    for (const PlacedBlock& p : placed_) {
      if (p.begin >= at + l.bytes) break;
      ++steps_;
      const bool overlap = (p.birth < l.death) & (l.birth < p.death);
      at = std::max(at, overlap ? p.end : 0);
    }
    const PlacedBlock added{.begin = at, .end = at + l.bytes, .birth = l.birth, .death = l.death};
    placed_.insert(std::ranges::upper_bound(placed_, at, {}, &PlacedBlock::begin), added);
    return at;
  }
  size_t steps() const { return steps_; }

 private:
  std::vector<PlacedBlock> placed_;  // by rising begin
  size_t steps_ = 0;
};

// An order: falling bytes^size * lifetime^life, and of equals the first born first.
struct Weight {
  double size = 0, life = 0;
};
constexpr Weight weights[] = {{1, 1}, {1, 0.5}, {0.5, 1}, {1, 0}, {0, 1}, {1, 0.25}, {0, 0}};

Order order_by(const Weight& weight, const std::vector<Lifetime>& all) {
  std::vector<double> keys;
  for (const Lifetime& l : all) {
    keys.push_back(weight.size * std::log(static_cast<double>(std::max<size_t>(l.bytes, 1))) +
                   weight.life * std::log(static_cast<double>(l.death - l.birth)));
  }
  Order order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return keys[i]; });
  return order;
}

// Tries orders and keeps the best.
class Search {
 public:
  explicit Search(Lifetimes lifetimes)
      : best_{.lifetimes = std::move(lifetimes), .bytes = std::numeric_limits<size_t>::max()} {
    best_.live = max_live(best_.lifetimes);
  }

  bool done() const { return best_.bytes - best_.live <= best_.live / 1000 || steps_ > max_steps; }

  // Returns the offset of each block.
  std::vector<size_t> place(const Order& order) {
    const std::vector<Lifetime>& all = best_.lifetimes.all;
    FirstFit fit;
    std::vector<size_t> offsets(all.size());
    size_t bytes = 0;
    for (const size_t i : order) {
      offsets[i] = fit.add(all[i]);
      bytes = std::max(bytes, offsets[i] + all[i].bytes);
    }
    steps_ += fit.steps();
    ++failures_;
    if (bytes < best_.bytes) {
      failures_ = 0;
      best_.bytes = bytes;
      best_.offsets = offsets;
    }
    return offsets;
  }

  // Starts from this order, and again and again moves blocks that end above the bound to the front.
  void improve(Order order) {
    failures_ = 0;
    while (!done() && failures_ < patience) {
      const std::vector<size_t> offsets = place(order);
      std::stable_partition(order.begin(), order.end(), [&](size_t i) {
        return offsets[i] + best_.lifetimes.all[i].bytes > best_.live;
      });
    }
  }

  const Lifetimes& lifetimes() const { return best_.lifetimes; }
  Layout best() && { return std::move(best_); }

 private:
  static constexpr size_t max_steps = 60'000'000;  // a few tenths of a second
  static constexpr int patience = 100;             // orders that were no better

  Layout best_;
  size_t steps_ = 0;
  int failures_ = 0;
};

}  // namespace

size_t max_live(const Lifetimes& lifetimes) {
  std::vector<std::pair<size_t, int64_t>> events;
  for (const Lifetime& l : lifetimes.all) {
    events.emplace_back(l.birth, static_cast<int64_t>(l.bytes));
    events.emplace_back(l.death, -static_cast<int64_t>(l.bytes));
  }
  std::ranges::sort(events);
  int64_t live = 0, max = 0;
  for (const auto& [when, change] : events) max = std::max(max, live += change);
  return static_cast<size_t>(max);
}

Layout assign_offsets(Lifetimes lifetimes) {
  Search search(std::move(lifetimes));
  for (const Weight& weight : weights) {
    if (!search.done()) search.place(order_by(weight, search.lifetimes().all));
  }
  for (const Weight& weight : weights) {
    if (!search.done()) search.improve(order_by(weight, search.lifetimes().all));
  }
  return std::move(search).best();
}

}  // namespace spool
