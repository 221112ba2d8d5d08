#include "spool/planner/offsets.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace spool {
namespace {

using Order = std::vector<size_t>;

struct Placed {
  size_t begin = 0, end = 0;    // bytes
  size_t birth = 0, death = 0;  // of the lifetime
};

// Puts one after the other at the first place that is free for all of its life.
class FirstFit {
 public:
  size_t add(const Lifetime& l) {
    size_t at = 0;
    for (const Placed& p : placed_) {
      if (p.begin >= at + l.bytes) break;
      ++looks_;
      const bool meet = (p.birth < l.death) & (l.birth < p.death);
      at = std::max(at, meet ? p.end : 0);
    }
    const Placed added{.begin = at, .end = at + l.bytes, .birth = l.birth, .death = l.death};
    placed_.insert(std::ranges::upper_bound(placed_, at, {}, &Placed::begin), added);
    return at;
  }
  size_t looks() const { return looks_; }

 private:
  std::vector<Placed> placed_;  // by where they begin
  size_t looks_ = 0;
};

// Who goes first: the larger by bytes^size * lifetime^life; of equals, who is born first.
struct Weight {
  double size = 0, life = 0;
};
constexpr Weight weights[] = {{1, 1}, {1, 0.5}, {0.5, 1}, {1, 0}, {0, 1}, {1, 0.25}, {0, 0}};

Order by(const Weight& weight, const std::vector<Lifetime>& all) {
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

// Tries orders, and remembers the best.
class Search {
 public:
  explicit Search(Lifetimes lifetimes)
      : best_{.lifetimes = std::move(lifetimes), .bytes = std::numeric_limits<size_t>::max()} {
    best_.live = max_live(best_.lifetimes);
  }

  bool done() const { return best_.bytes - best_.live <= best_.live / 1000 || looks_ > max_looks; }

  // Returns where everything went.
  std::vector<size_t> place(const Order& order) {
    const std::vector<Lifetime>& all = best_.lifetimes.all;
    FirstFit fit;
    std::vector<size_t> offsets(all.size());
    size_t bytes = 0;
    for (const size_t i : order) {
      offsets[i] = fit.add(all[i]);
      bytes = std::max(bytes, offsets[i] + all[i].bytes);
    }
    looks_ += fit.looks();
    ++in_vain_;
    if (bytes < best_.bytes) {
      in_vain_ = 0;
      best_.bytes = bytes;
      best_.offsets = offsets;
    }
    return offsets;
  }

  // From this order on: who went above what could do for all goes before all others.
  void improve(Order order) {
    in_vain_ = 0;
    while (!done() && in_vain_ < patience) {
      const std::vector<size_t> offsets = place(order);
      std::stable_partition(order.begin(), order.end(), [&](size_t i) {
        return offsets[i] + best_.lifetimes.all[i].bytes > best_.live;
      });
    }
  }

  const Lifetimes& lifetimes() const { return best_.lifetimes; }
  Layout best() && { return std::move(best_); }

 private:
  static constexpr size_t max_looks = 60'000'000;  // a few tenths of a second
  static constexpr int patience = 100;             // orders

  Layout best_;
  size_t looks_ = 0;
  int in_vain_ = 0;
};

}  // namespace

size_t max_live(const Lifetimes& lifetimes) {
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

Layout assign_offsets(Lifetimes lifetimes) {
  Search search(std::move(lifetimes));
  for (const Weight& weight : weights) {
    if (!search.done()) search.place(by(weight, search.lifetimes().all));
  }
  for (const Weight& weight : weights) {
    if (!search.done()) search.improve(by(weight, search.lifetimes().all));
  }
  return std::move(search).best();
}

}  // namespace spool
