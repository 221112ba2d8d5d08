#include "spool/planner/search/offload_ways.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spool {
namespace {

// The part of a link's bytes that can be used: copies begin a little late and end a little early.
constexpr double link_use = 0.97;

double seconds_per_byte(const Machine& machine, OffloadTarget target) {
  return 1 / std::min(machine.to_host_bytes_per_second, machine.from_host_bytes_per_second) +
         (target == OffloadTarget::disk ? 1 / machine.disk_bytes_per_second : 0);
}

// The first rows of a value, which are offloaded.
struct OffloadedRows {
  const Offloadable::Value* value = nullptr;
  int64_t rows = 0;
  double bytes = 0;
  bool is_whole() const { return rows == value->rows; }
};

// Rows of one of these values: as many as possible, while few stay.
OffloadedRows divided(const std::vector<const Offloadable::Value*>& values, double bytes) {
  OffloadedRows divided;
  double best = -INFINITY;
  for (const Offloadable::Value* v : values) {
    const double row = v->bytes / static_cast<double>(v->rows);
    const double rows = std::floor(bytes / row);
    const double gain = rows * row - (v->bytes - rows * row) / 2;
    if (rows < 1 || gain <= best) continue;
    best = gain;
    divided = {.value = v, .rows = static_cast<int64_t>(rows), .bytes = rows * row};
  }
  return divided;
}

// Whole values while they fit into `bytes`, then rows of one more.
std::vector<OffloadedRows> offloaded_rows(const Offloadable& offloadable, double bytes) {
  std::vector<OffloadedRows> offloaded;
  std::vector<const Offloadable::Value*> others;
  bytes += 1;  // for rounding
  for (const Offloadable::Value& v : offloadable.values) {
    if (v.bytes > bytes) {
      others.push_back(&v);
      continue;
    }
    bytes -= v.bytes;
    offloaded.push_back({.value = &v, .rows = v.rows, .bytes = v.bytes});
  }
  const OffloadedRows rest = divided(others, bytes);
  if (rest.value) offloaded.push_back(rest);
  std::ranges::sort(offloaded, {}, [](const OffloadedRows& rows) { return rows.value->id; });
  return offloaded;
}

// Each number becomes at least the other list's.
void raise(std::vector<size_t>& numbers, const std::vector<size_t>& others) {
  numbers.resize(std::max(numbers.size(), others.size()));
  for (size_t i = 0; i < others.size(); ++i) numbers[i] = std::max(numbers[i], others[i]);
}

}  // namespace

OffloadWays::OffloadWays(const SearchedStep& step, const MeasuredSegments& measured,
                         const Levers& levers)
    : step_(step), measured_(measured) {
  if (!levers.offload_to) return;
  const double out = measured.seconds_before_loss + measured.seconds_of_loss;
  const double back = measured.seconds_after_loss - measured.seconds_of_loss;
  link_rate_ = 1 / seconds_per_byte(step.machine, *levers.offload_to);
  bytes_out_ = link_use * link_rate_ * std::min(out, back / fetch_caution);
  ends_.resize(measured.segments.size());
  for (size_t s = ends_.size(); s-- > 0;) ends_[s] = backward_ += measured.backward_seconds[s];
  if (bytes_out_ <= 0) return;
  list_offloadable();
  bytes_out_ = std::min(bytes_out_, max_offloadable());
  if (bytes_out_ <= 0) return;
  measure_forward();
  constexpr int parts = 20;
  for (const double price : prices()) {
    for (int part = parts; part > 0; --part) {
      for (const bool divides : {true, false}) {
        const OffloadWay way{.price = price, .part = 1.0 * part / parts, .divides = divides};
        Beginning begin = beginning(way, way.part * bytes_out_, MetaStream::unlimited, {});
        // Ways that are equal without a limit are one, also under limits.
        const auto is_it = [&](const Beginning& other) {
          return other.choice.by_segment == begin.choice.by_segment &&
                 other.choice.offloaded == begin.choice.offloaded;
        };
        if (std::ranges::none_of(all_, is_it)) all_.push_back(std::move(begin));
      }
    }
  }
}

void OffloadWays::list_offloadable() {
  const IdTable<NodeId, double> begins = measured_.keep_all.begins(Phase::forward);
  const auto value_of = [&](const OffloadableValue& v) {
    const NodeId next = measured_.keep_all.values[v.value].first_saved + 1;
    const Shape& shape = measured_.program->values[v.value].spec.shape;
    return Offloadable::Value{.id = v.value,
                              .bytes = static_cast<double>(v.bytes),
                              .saved = begins.value_or(next, begins.back()) - begins.front(),
                              .rows = shape.rank() > 0 ? shape[0] : 1};
  };
  for (size_t s = 0; s < measured_.segments.size(); ++s) {
    std::vector<Offloadable>& all = offloadable_.emplace_back();
    for (const MeasuredOption& o : measured_.options_of(s, /*row_choice=*/0)) {
      Offloadable& offloadable = all.emplace_back();
      offloadable.bytes = static_cast<double>(measured_.offloadable_bytes(s, o));
      for (const OffloadableValue& v : measured_.offloadable[s]) {
        if (!is_kept(o.option, *measured_.program, measured_.segments[s], v.value)) continue;
        offloadable.values.push_back(value_of(v));
      }
    }
  }
}

double OffloadWays::max_offloadable() const {
  double bytes = 0;
  for (size_t s = 0; s + 1 < offloadable_.size(); ++s) {
    bytes += std::ranges::max_element(offloadable_[s], {}, &Offloadable::bytes)->bytes;
  }
  return bytes;
}

void OffloadWays::measure_forward() {
  const std::vector<Segment>& segments = measured_.segments;
  const double begin = measured_.keep_all.begins(Phase::forward).front();
  forward_begins_.assign(segments.size(), -1);
  for (const SurveyedWork& work : measured_.keep_all.works) {
    if (work.node < 0 || work.phase != Phase::forward || work.micro_batch > 0) continue;
    const auto at = std::ranges::lower_bound(segments, work.node, {}, &Segment::last);
    double& begins = forward_begins_[static_cast<size_t>(at - segments.begin())];
    if (begins < 0) begins = work.begin - begin;
  }
}

// The prices at which another option of the first offloading segment becomes the cheapest.
std::vector<double> OffloadWays::prices() const {
  size_t first = 0;
  while (first < measured_.segments.size() && measured_.segments[first].candidates.empty()) ++first;
  if (first == measured_.segments.size()) return {0};
  struct Corner {
    double bytes = 0, seconds = 0;
  };
  std::vector<Corner> all, hull;
  const auto& options = measured_.options_of(first, /*row_choice=*/0);
  for (size_t o = 0; o < options.size(); ++o)
    all.push_back({.bytes = offloadable_[first][o].bytes, .seconds = options[o].extra_seconds});
  std::ranges::stable_sort(all, std::greater(), &Corner::bytes);
  const auto slope = [](const Corner& a, const Corner& b) {
    return (b.seconds - a.seconds) / std::max(a.bytes - b.bytes, 1.0);
  };
  for (const Corner& c : all) {
    while (!hull.empty() && c.seconds <= hull.back().seconds) hull.pop_back();
    while (hull.size() > 1 && slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), c)) {
      hull.pop_back();
    }
    hull.push_back(c);
  }
  std::vector<double> between{0};
  for (size_t i = 1; i < hull.size(); ++i) {
    const double before = slope(hull[i - 1], hull[i]);
    const double after = i + 1 < hull.size() ? slope(hull[i], hull[i + 1]) : 2 * before;
    between.push_back((before + after) / 2);
  }
  return between;
}

size_t OffloadWays::cheapest(size_t segment, double price, int64_t room,
                             const OthersBytes& others) const {
  const auto& options = measured_.options_of(segment, /*row_choice=*/0);
  auto& orders = cheapest_first_[price];
  orders.resize(measured_.segments.size());
  std::vector<size_t>& order = orders[segment];
  if (order.empty()) {
    for (size_t o = 0; o < options.size(); ++o) order.push_back(o);
    std::ranges::stable_sort(order, {}, [&](size_t o) {
      return options[o].extra_seconds + price * offloadable_[segment][o].bytes;
    });
  }
  for (const size_t o : order) {
    if (needed_bytes(measured_, segment, options[o], others) <= room) return o;
  }
  return options.size();
}

// Rows that stay of a divided value are copied within the device when the rest leaves and when it
// returns, which takes seconds.
double OffloadWays::offload(Beginning& begin, const Offloadable& offloadable, double bytes) const {
  double offloaded = 0;
  for (const OffloadedRows& v : offloaded_rows(offloadable, bytes)) {
    if (!v.is_whole() && !begin.choice.way.divides) continue;
    offloaded += v.bytes;
    begin.copies.push_back(
        {.segment = begin.choice.offloaded.size(), .saved = v.value->saved, .bytes = v.bytes});
    const Cost copy{.bytes = 2 * (v.value->bytes - v.bytes)};
    if (!v.is_whole()) begin.choice.extra_seconds += 2 * step_.machine.seconds(copy);
  }
  return offloaded;
}

// Gives the first segments their cheapest options at this price, until the offloaded bytes reach
// `bytes`.
Beginning OffloadWays::beginning(const OffloadWay& way, double bytes, size_t limit,
                                 const OthersBytes& others) const {
  Beginning begin{.kept = static_cast<int64_t>(measured_.live_at_first)};
  Choice& choice = begin.choice;
  choice.way = way;
  for (size_t s = 0; s + 1 < measured_.segments.size() && bytes > 0; ++s) {
    const auto& options = measured_.options_of(s, /*row_choice=*/0);
    const size_t best = cheapest(s, way.price, static_cast<int64_t>(limit) - begin.kept, others);
    if (best == options.size()) break;
    const Offloadable& offloadable = offloadable_[s][best];
    choice.by_segment.push_back(&options[best]);
    choice.extra_seconds += options[best].extra_seconds;
    const double offloaded = offload(begin, offloadable, bytes);
    choice.offloaded.push_back(offloaded);
    begin.offloaded += offloaded;
    bytes -= offloadable.bytes;
    begin.kept += choice.kept(measured_, s);
  }
  time_copies_back(begin);
  time_copies_out(begin);
  begin.max = static_cast<int64_t>(live_in_segments(measured_, choice));
  return begin;
}

// What copies have not taken away yet, or brought back for others, is known only when all options
// are chosen; the next attempt leaves room for it.
Beginning OffloadWays::limited_beginning(const OffloadWay& way, double bytes, size_t limit) const {
  constexpr int max_tries = 8;
  Beginning begin = beginning(way, bytes, limit, {});
  OthersBytes others;
  for (int i = 1; i < max_tries && begin.max > static_cast<int64_t>(limit); ++i) {
    raise(others.backward, begin.choice.others.backward);
    raise(others.forward, begin.choice.others.forward);
    begin = beginning(way, bytes, limit, others);
  }
  return begin;
}

// Copies back begin as late as they may (planner/offload_schedule.h); what returns for the first
// segments is live while later ones still run backward.
void OffloadWays::time_copies_back(Beginning& begin) const {
  Choice& choice = begin.choice;
  const size_t offloading = choice.offloaded.size();
  std::vector<double> begins(offloading), ends(offloading);
  double next = offloading < ends_.size() ? ends_[offloading] : 0;
  for (size_t s = offloading; s-- > 0;) {
    begins[s] = next;
    ends[s] = next += measured_.backward_seconds[s] + choice.by_segment[s]->extra_seconds;
  }
  std::vector<double> returned(offloading);
  for (size_t s = 0; s < offloading; ++s) {
    const double bytes = choice.offloaded[s];
    const double copy = fetch_caution * bytes / link_rate_;
    if (copy <= 0) continue;
    next = std::min(next, begins[s]) - copy;
    for (size_t later = s + 1; later < offloading && ends[later] > next; ++later) {
      returned[later] += std::clamp((ends[later] - next) / copy, 0.0, 1.0) * bytes;
    }
  }
  constexpr double parts = Returning::parts;
  const double first = std::min(next, backward_);
  begin.returning.begin = static_cast<int>(std::floor(parts * first / backward_));
  choice.others.backward.assign(returned.begin(), returned.end());
}

// Copies out run one after the other.  A value is live until its copy has ended.
void OffloadWays::time_copies_out(Beginning& begin) const {
  const std::vector<Beginning::Copy>& copies = begin.copies;
  const size_t offloading = begin.choice.offloaded.size();
  std::vector<double> ends, sums{0};  // seconds since forward began; bytes of the first copies
  for (const Beginning::Copy& c : copies) {
    ends.push_back(std::max(ends.empty() ? 0 : ends.back(), c.saved) + c.bytes / link_rate_);
    sums.push_back(sums.back() + c.bytes);
  }
  // Bytes of the segments before this one whose copies end later; ends and segments both rise.
  const auto bytes_after = [&](double time, size_t segment) {
    const auto first = std::ranges::upper_bound(ends, time) - ends.begin();
    const auto last =
        std::ranges::lower_bound(copies, segment, {}, &Beginning::Copy::segment) - copies.begin();
    if (last <= first) return 0.0;
    return sums[static_cast<size_t>(last)] - sums[static_cast<size_t>(first)];
  };
  constexpr double parts = Returning::parts;
  const double out = ends.empty() ? 0 : ends.back() / measured_.seconds_before_loss;
  const double late = bytes_after(measured_.seconds_before_loss, offloading);
  begin.returning.out = static_cast<int>(std::ceil(parts * std::min(out, 2.0)));
  begin.returning.late = static_cast<int>(std::ceil(parts * late / bytes_out_));
  OthersBytes others = live_of_others(begin.returning);
  std::ranges::copy(begin.choice.others.backward, others.backward.begin());
  for (size_t s = 0; s < offloading; ++s) {
    others.forward[s] = static_cast<size_t>(bytes_after(forward_begins_[s], s));
  }
  begin.choice.others = std::move(others);
}

OthersBytes OffloadWays::live_of_others(const Returning& returning) const {
  if (bytes_out_ <= 0) return {};
  constexpr double parts = Returning::parts;
  const double first = returning.begin / parts * backward_;
  const double out = returning.out / parts * measured_.seconds_before_loss;
  OthersBytes others;
  for (size_t s = 0; s < ends_.size(); ++s) {
    const double back = std::max(ends_[s] - first, 0.0) * link_rate_ / fetch_caution;
    const double leaving =
        std::min(std::max(out - forward_begins_[s], 0.0) * link_rate_, bytes_out_);
    others.backward.push_back(static_cast<size_t>(std::min(back, bytes_out_)));
    others.forward.push_back(static_cast<size_t>(leaving));
  }
  // What is copied out while the loss runs is live in it.
  others.forward.back() = static_cast<size_t>(returning.late / parts * bytes_out_);
  others.backward.back() += others.forward.back();
  return others;
}

std::vector<const Beginning*> OffloadWays::within(size_t limit, size_t host_bytes,
                                                  std::deque<Beginning>& limited) const {
  // A host smaller than all offloadable bytes is used up to a multiple of this part.
  const double part = bytes_out_ / 64;
  const double host = std::floor(static_cast<double>(host_bytes) / part) * part;
  std::vector<const Beginning*> all;
  for (const Beginning& way : all_) {
    const OffloadWay& own = way.choice.way;
    const double bytes = std::min(own.part * bytes_out_, host);
    if (bytes <= 0) continue;
    const bool fits = way.max <= static_cast<int64_t>(limit) && bytes >= own.part * bytes_out_;
    all.push_back(fits ? &way : &limited.emplace_back(limited_beginning(own, bytes, limit)));
  }
  std::erase_if(all, [&](const Beginning* b) { return b->max > static_cast<int64_t>(limit); });
  return all;
}

std::vector<OffloadCandidate> OffloadWays::values(const Choice& choice,
                                                  IdTable<ValueId, int64_t>& rows) const {
  std::vector<OffloadCandidate> all;
  for (size_t s = 0; s < choice.offloaded.size(); ++s) {
    const auto& options = measured_.options_of(s, /*row_choice=*/0);
    const auto option = static_cast<size_t>(choice.by_segment[s] - options.data());
    const Offloadable& offloadable = offloadable_[s][option];
    for (const OffloadedRows& v : offloaded_rows(offloadable, choice.offloaded[s])) {
      rows[v.value->id] = v.is_whole() ? -1 : v.rows;
      all.push_back({.value = v.value->id, .bytes = static_cast<size_t>(v.bytes)});
    }
  }
  return all;
}

}  // namespace spool
