#include "spool/planner/offsets_sweep.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace spool {
namespace {

// Prefix sums over positions whose values may still grow.
class RangeSums {
 public:
  explicit RangeSums(size_t size) : sums_(size + 1) {}
  void add(size_t at, size_t amount) {
    for (++at; at < sums_.size(); at += at & (0 - at)) sums_[at] += amount;
  }
  // The sum over [0, end).
  size_t below(size_t end) const {
    size_t sum = 0;
    for (; end > 0; end &= end - 1) sum += sums_[end];
    return sum;
  }

 private:
  std::vector<size_t> sums_;  // a Fenwick tree
};

// For how long one of the blocks lives without the other, on the side where that is shorter; 0 if
// they do not cross.
double crossing(const TimedBlocks::Block& a, const TimedBlocks::Block& b) {
  const bool meet = (a.birth < b.death) & (b.birth < a.death);
  if (!meet || (a.birth < b.birth) != (a.death < b.death)) return 0;
  const auto [birth, later_birth] = std::minmax(a.birth, b.birth);
  const auto [death, later_death] = std::minmax(a.death, b.death);
  return static_cast<double>(std::min(later_birth - birth, later_death - death));
}

}  // namespace

TimedBlocks in_event_time(const std::vector<Lifetime>& lifetimes) {
  std::vector<std::array<size_t, 3>> order;  // time; 0: death, 1: birth; block
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    order.push_back({lifetimes[i].birth, 1, i});
    order.push_back({lifetimes[i].death, 0, i});
  }
  std::ranges::sort(order);
  TimedBlocks timed;
  for (const Lifetime& l : lifetimes) timed.blocks.push_back({.bytes = l.bytes});
  for (const auto& [time, is_birth, i] : order) {
    TimedBlocks::Block& block = timed.blocks[i];
    (is_birth ? block.birth : block.death) = timed.events.size();
    timed.events.push_back({.block = i, .is_birth = is_birth == 1});
  }
  return timed;
}

TimedBlocks backwards(TimedBlocks timed) {
  for (TimedBlocks::Block& b : timed.blocks) {
    const size_t last = timed.events.size() - 1;
    b.birth = last - std::exchange(b.death, last - b.birth);
  }
  std::ranges::reverse(timed.events);
  for (TimedBlocks::Event& e : timed.events) e.is_birth = !e.is_birth;
  return timed;
}

size_t max_live(const TimedBlocks& timed) {
  size_t live = 0, max = 0;
  for (const TimedBlocks::Event& e : timed.events) {
    const size_t bytes = timed.blocks[e.block].bytes;
    live = e.is_birth ? live + bytes : live - bytes;
    max = std::max(max, live);
  }
  return max;
}

std::vector<End> ends_by_age(const TimedBlocks& timed) {
  std::vector<End> ends(timed.blocks.size());
  RangeSums bottom(timed.events.size());  // bytes at the bottom, by death
  size_t all = 0;
  for (const TimedBlocks::Event& e : timed.events) {
    if (!e.is_birth) continue;
    const TimedBlocks::Block& block = timed.blocks[e.block];
    const size_t dead = bottom.below(block.birth), outlived = bottom.below(block.death) - dead;
    if (outlived > (all - dead) / 2) {
      ends[e.block] = End::top;
    } else {
      bottom.add(block.death, block.bytes);
      all += block.bytes;
    }
  }
  return ends;
}

std::vector<End> ends_by_weight(const TimedBlocks& timed) {
  constexpr size_t max_heavy = 64;
  std::vector<size_t> order(timed.blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) {
    return static_cast<double>(timed.blocks[i].bytes) * static_cast<double>(timed.blocks[i].life());
  });
  std::vector<End> ends(order.size());
  std::vector<size_t> heavy;
  for (const size_t i : order) {
    std::array<double, 2> crossed{};
    for (const size_t h : heavy) {
      crossed[static_cast<size_t>(ends[h])] +=
          static_cast<double>(timed.blocks[h].bytes) * crossing(timed.blocks[i], timed.blocks[h]);
    }
    if (crossed[0] > crossed[1]) ends[i] = End::top;
    if (heavy.size() < max_heavy) heavy.push_back(i);
  }
  return ends;
}

// The free memory at some time.
class OffsetSweep::FreeMemory {
 public:
  FreeMemory(size_t bytes, Steps& steps) : holes_{{.begin = 0, .end = bytes}}, steps_(steps) {}

  // The offset nearest to this end from which `bytes` bytes are free and not in `taken`.
  std::optional<size_t> find(size_t bytes, End end, const std::vector<Span>& taken) {
    return end == End::bottom ? find_lowest(bytes, taken) : find_highest(bytes, taken);
  }

  // The whole span must be free.
  void take(const Span& span) {
    const auto hole = first_from(span.begin + 1) - 1;
    if (hole->begin == span.begin) {
      hole->begin = span.end;
      if (hole->begin == hole->end) holes_.erase(hole);
      return;
    }
    const size_t end = std::exchange(hole->end, span.begin);
    if (span.end < end) holes_.insert(hole + 1, {.begin = span.end, .end = end});
  }

  void give(const Span& span) {
    const auto above = first_from(span.begin);
    const bool meets_below = above != holes_.begin() && (above - 1)->end == span.begin;
    const bool meets_above = above != holes_.end() && above->begin == span.end;
    if (meets_below && meets_above) {
      (above - 1)->end = above->end;
      holes_.erase(above);
    } else if (meets_below) {
      (above - 1)->end = span.end;
    } else if (meets_above) {
      above->begin = span.begin;
    } else {
      holes_.insert(above, span);
    }
  }

 private:
  std::vector<Span>::iterator first_from(size_t begin) {
    return std::ranges::lower_bound(holes_, begin, {}, &Span::begin);
  }

  std::optional<size_t> find_lowest(size_t bytes, const std::vector<Span>& taken) {
    for (const Span& hole : holes_) {
      ++steps_.done;
      if (steps_.are_used_up()) break;
      size_t begin = hole.begin;
      const auto moves_up = [&](const Span& t) {
        if (t.begin >= begin + bytes || t.end <= begin) return false;
        begin = t.end;
        return true;
      };
      while (begin + bytes <= hole.end && is_moved(taken, moves_up)) continue;
      if (begin + bytes <= hole.end) return begin;
    }
    return {};
  }

  std::optional<size_t> find_highest(size_t bytes, const std::vector<Span>& taken) {
    for (size_t i = holes_.size(); i-- > 0 && !steps_.are_used_up();) {
      const Span& hole = holes_[i];
      ++steps_.done;
      size_t end = hole.end;
      const auto moves_down = [&](const Span& t) {
        if (t.end + bytes <= end || t.begin >= end) return false;
        end = t.begin;
        return true;
      };
      while (end >= hole.begin + bytes && is_moved(taken, moves_down)) continue;
      if (end >= hole.begin + bytes) return end - bytes;
    }
    return {};
  }

  bool is_moved(const std::vector<Span>& taken, const auto& moves) {
    steps_.done += taken.size();
    bool any = false;
    for (const Span& t : taken) any |= moves(t);
    return any && !steps_.are_used_up();
  }

  std::vector<Span> holes_;  // rising, none next to another
  Steps& steps_;
};

OffsetSweep::OffsetSweep(const TimedBlocks& all, const std::vector<End>& ends)
    : all_(all), ends_(ends), offsets_(all.blocks.size()) {}

bool OffsetSweep::place(const Limits& limits) {
  steps_.max = steps_.done + limits.steps;
  is_early_.clear();
  for (const TimedBlocks::Block& b : all_.blocks) is_early_.push_back(b.life() > limits.life);
  for (int i = 0; i < limits.tries && !steps_.are_used_up(); ++i) {
    if (!sweep(Pass::early, limits)) return false;
    if (sweep(Pass::late, limits)) return true;
    is_early_[failed_] = true;
  }
  return false;
}

bool OffsetSweep::sweep(Pass pass, const Limits& limits) {
  FreeMemory memory(limits.capacity, steps_);
  if (pass == Pass::early) early_.clear();
  size_t next_early = 0;
  for (const auto& [block, is_birth] : all_.events) {
    ++steps_.done;
    const bool is_early = is_early_[block];
    if ((pass == Pass::early && !is_early) || all_.blocks[block].bytes == 0) continue;
    if (!is_birth) {
      memory.give(span(block));
      continue;
    }
    if (pass == Pass::early) early_.push_back(block);
    if (is_early) ++next_early;
    if (pass == Pass::late && is_early) {
      memory.take(span(block));
    } else if (!place_block(block, next_early, memory)) {
      return false;
    }
  }
  return true;
}

bool OffsetSweep::place_block(size_t block, size_t next_early, FreeMemory& memory) {
  find_taken(block, next_early);
  const std::optional<size_t> at = memory.find(all_.blocks[block].bytes, ends_[block], taken_);
  if (!at || steps_.are_used_up()) {
    failed_ = block;
    return false;
  }
  offsets_[block] = *at;
  memory.take(span(block));
  return true;
}

void OffsetSweep::find_taken(size_t block, size_t next_early) {
  taken_.clear();
  for (size_t k = next_early; k < early_.size(); ++k, ++steps_.done) {
    if (all_.blocks[early_[k]].birth > all_.blocks[block].death) break;
    taken_.push_back(span(early_[k]));
  }
}

OffsetSweep::Span OffsetSweep::span(size_t block) const {
  return {.begin = offsets_[block], .end = offsets_[block] + all_.blocks[block].bytes};
}

}  // namespace spool
