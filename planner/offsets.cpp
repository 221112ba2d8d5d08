#include "spool/planner/offsets.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "spool/planner/offsets_sweep.h"

namespace spool {
namespace {

enum class EndsBy : uint8_t { age, weight };

// One kind of sweep.  Blocks that live longer than 1/`part` of the time are placed in advance.
struct SweepVariant {
  EndsBy ends_by = EndsBy::age;
  bool is_backwards = false;
  size_t part = 1;
};
// The first two lay out most steps without offloads.
constexpr SweepVariant variants[] = {{EndsBy::age, false, 32},   {EndsBy::age, true, 128},
                                     {EndsBy::weight, false, 8}, {EndsBy::weight, true, 128},
                                     {EndsBy::weight, true, 8},  {EndsBy::weight, true, 16},
                                     {EndsBy::age, false, 1},    {EndsBy::age, true, 1}};

size_t whole_granules(size_t bytes) { return bytes / Arena::granule * Arena::granule; }

// Searches for offsets.
class OffsetSearch {
 public:
  explicit OffsetSearch(const std::vector<Lifetime>& all)
      : forwards_(in_event_time(all)),
        backwards_(backwards(forwards_)),
        live_(max_live(forwards_)),
        few_steps_(std::max(size_t{250'000}, 16 * forwards_.events.size())) {}

  size_t live() const { return live_; }

  std::vector<size_t> search(size_t enough) {
    const size_t near = std::min(enough, whole_granules(live_ + live_ / 1000));
    if (!place(live_, few_steps_) && !place(near, 4 * few_steps_)) place_beyond(near, enough);
    return std::move(offsets_);
  }

 private:
  static constexpr int max_tries = 24;  // of a variant

  size_t max_steps() const { return 160 * few_steps_; }  // a few tenths of a second

  bool place(size_t capacity, size_t steps_of_variant) {
    for (const SweepVariant& v : variants) {
      if (steps_ > max_steps()) return false;
      OffsetSweep sweep(blocks(v), ends(v));
      const bool placed = sweep.place({.capacity = capacity,
                                       .life = forwards_.events.size() / v.part,
                                       .tries = max_tries,
                                       .steps = steps_of_variant});
      steps_ += sweep.steps();
      if (placed) {
        offsets_ = sweep.offsets();
        return true;
      }
    }
    return false;
  }

  // Finds a capacity above `failed`, which was too small: about twice the extra bytes that are
  // needed if that is within `enough`, else the smallest it finds, to 0.05 %.
  void place_beyond(size_t failed, size_t enough) {
    size_t more = std::max(Arena::granule, whole_granules(live_ / 1000));
    if (failed < enough) more = std::min(more, enough - failed);
    while (!place(failed + more, few_steps_)) {
      failed += more;
      more *= 2;
      if (failed < enough) more = std::min(more, enough - failed);
      if (steps_ > max_steps() || failed > 2 * live_) return place_anyhow();
    }
    if (failed < enough) return;
    while (more > std::max(Arena::granule, live_ / 2000) && steps_ < max_steps()) {
      more = whole_granules(more / 2);
      if (!place(failed + more, few_steps_)) failed += more;
    }
  }

  // Places all blocks from the bottom, without a limit.
  void place_anyhow() {
    constexpr size_t no_limit = std::numeric_limits<size_t>::max() / 4;
    const std::vector<End> bottom(forwards_.blocks.size());
    OffsetSweep sweep(forwards_, bottom);
    sweep.place({.capacity = no_limit, .life = no_limit, .steps = no_limit});
    offsets_ = sweep.offsets();
  }

  const TimedBlocks& blocks(const SweepVariant& v) const {
    return v.is_backwards ? backwards_ : forwards_;
  }
  const std::vector<End>& ends(const SweepVariant& v) {
    const bool by_weight = v.ends_by == EndsBy::weight;
    std::vector<End>& ends = ends_[by_weight][v.is_backwards];
    if (ends.empty()) ends = by_weight ? ends_by_weight(blocks(v)) : ends_by_age(blocks(v));
    return ends;
  }

  TimedBlocks forwards_, backwards_;
  size_t live_, few_steps_, steps_ = 0;
  std::vector<End> ends_[2][2];  // chosen when first needed
  std::vector<size_t> offsets_;  // of the last success
};

// Closes the gaps in memory that no block ever uses; returns the bytes that remain.
size_t close_gaps(const std::vector<Lifetime>& all, std::vector<size_t>& offsets) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return offsets[i]; });
  size_t end = 0, closed = 0;
  for (const size_t i : order) {
    closed = std::max(closed, offsets[i] - std::min(offsets[i], end));
    offsets[i] -= closed;
    end = std::max(end, offsets[i] + all[i].bytes);
  }
  return end;
}

}  // namespace

size_t max_live(const Lifetimes& lifetimes) { return max_live(in_event_time(lifetimes.all)); }

Layout assign_offsets(Lifetimes lifetimes, size_t enough) {
  OffsetSearch search(lifetimes.all);
  const size_t live = search.live();
  if (enough < live) enough = live + live / 1000;
  Layout layout{.lifetimes = std::move(lifetimes), .live = live};
  layout.offsets = search.search(whole_granules(enough));
  layout.bytes = close_gaps(layout.lifetimes.all, layout.offsets);
  return layout;
}

}  // namespace spool
