#include "spool/planner/search/dynamic_program.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace spool {
namespace {

// The number of segments that can run in chunks.
size_t segments_with_rows(const MeasuredSegments& m) {
  return static_cast<size_t>(std::ranges::count_if(m.segments, [&](const Segment& s) {
    return m.options[static_cast<size_t>(s.kind)].size() > 1;
  }));
}

}  // namespace

// Merges two lists of steps, without those that another one beats.
void FastestChoices::merge(const Steps& a, const Steps& b, Steps& merged) {
  merged.clear();
  double min = std::numeric_limits<double>::infinity();
  const auto add = [&](const Step& step) {
    if (step.seconds >= min) return;
    min = step.seconds;
    if (!merged.empty() && merged.back().room == step.room) merged.pop_back();
    merged.push_back(step);
  };
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool first = j == b.size() || (i < a.size() && a[i].room <= b[j].room);
    add(first ? a[i++] : b[j++]);
  }
}

bool Family::has(const MeasuredOption& option) const {
  return !option.option.region || option.option.region->chunks <= max_chunks;
}

std::vector<Family> families_of(const MeasuredSegments& m) {
  constexpr int few = 16;
  std::vector<Family> all{{.max_chunks = few}, {}};
  for (size_t rows = 0; rows < m.rows.size() && m.rows.size() > 1; ++rows) {
    all.push_back({.row_choice = rows});
  }
  for (size_t region = 0; region < m.options_with_region.size(); ++region) {
    all.push_back({.region = region});
  }
  for (size_t rows = 0; rows < m.rows.size() && m.rows.size() > 1; ++rows) {
    for (size_t region = 0; region < m.options_with_region.size(); ++region) {
      all.push_back({.row_choice = rows, .region = region});
    }
  }
  return all;
}

FastestChoices::FastestChoices(const MeasuredSegments& m, OthersBytes others, Family family)
    : m_(m),
      others_(std::move(others)),
      family_(family),
      alike_kind_(most_frequent_kind(m.segments)) {
  std::vector<size_t> all(m.rows.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (family_.row_choice) all = {*family_.row_choice};
  const Step nothing{.room = std::numeric_limits<int64_t>::min() / 2};
  const Run empty{.rows = {}, .after = {{nothing}}};
  // A single segment may choose among all rows; several must agree.
  if (segments_with_rows(m) <= 1) {
    runs_.push_back(empty);
    runs_.back().rows = all;
    return;
  }
  for (const size_t rows : all) {
    runs_.push_back(empty);
    runs_.back().rows = {rows};
  }
}

const std::vector<MeasuredOption>& FastestChoices::options_of(size_t segment, size_t rows) const {
  const bool is_alike = family_.region && m_.segments[segment].kind == alike_kind_;
  return is_alike ? m_.options_with_region[*family_.region] : m_.options_of(segment, rows);
}

// From the room on that an option needs, one that keeps and takes more is never better.
std::vector<FastestChoices::Shift> FastestChoices::shifts_of(
    size_t segment, const std::vector<MeasuredOption>& options) const {
  std::vector<Shift> all;
  for (size_t o = 0; o < options.size(); ++o) {
    if (!family_.has(options[o])) continue;
    all.push_back({.kept = m_.keeps[segment] + options[o].extra_kept,
                   .needed = needed_bytes(m_, segment, options[o], others_),
                   .seconds = options[o].extra_seconds,
                   .option = static_cast<int32_t>(o)});
  }
  for (Shift& shift : all) {
    for (const Shift& other : all) {
      const bool is_as_good = other.seconds <= shift.seconds && other.kept <= shift.kept;
      const bool is_better = other.seconds < shift.seconds || other.kept < shift.kept;
      if (is_as_good && is_better) shift.until = std::min(shift.until, other.needed);
    }
  }
  return all;
}

// The steps after one more segment, with one of its options.
void FastestChoices::shift_by(const Shift& shift, const Steps& after, int32_t rows,
                              Steps& shifted) {
  shifted.clear();
  for (const Step& step : after) {
    const int64_t room = std::max(step.room + shift.kept, shift.needed);
    if (room >= shift.until) break;
    if (!shifted.empty() && shifted.back().room == room) shifted.pop_back();
    shifted.push_back({.room = room,
                       .seconds = step.seconds + shift.seconds,
                       .option = shift.option,
                       .rows = rows});
  }
}

// Adds the segment before those of the run.
void FastestChoices::extend(Run& run, std::vector<Steps>& by_option) const {
  const size_t segment = m_.segments.size() - run.after.size();
  const bool has_rows = m_.options[static_cast<size_t>(m_.segments[segment].kind)].size() > 1;
  size_t count = 0;
  for (const size_t rows : run.rows) {
    for (const Shift& shift : shifts_of(segment, options_of(segment, rows))) {
      if (count == by_option.size()) by_option.emplace_back();
      shift_by(shift, run.after.back(), static_cast<int32_t>(rows), by_option[count++]);
    }
    if (!has_rows) break;
  }
  // Neighbours are merged first, so that each step is copied few times.
  Steps merged;
  for (size_t apart = 1; apart < count; apart *= 2) {
    for (size_t i = 0; i + apart < count; i += 2 * apart) {
      merge(by_option[i], by_option[i + apart], merged);
      std::swap(by_option[i], merged);
    }
  }
  run.after.push_back(count > 0 ? by_option.front() : Steps{});
}

const FastestChoices::Step* FastestChoices::step(Run& run, size_t segment, int64_t room) {
  std::vector<Steps> by_option;  // kept for its memory
  while (run.after.size() <= m_.segments.size() - segment) extend(run, by_option);
  const Steps& steps = run.after[m_.segments.size() - segment];
  const auto above = std::ranges::upper_bound(steps, room, {}, &Step::room);
  return above == steps.begin() ? nullptr : &*std::prev(above);
}

double FastestChoices::seconds(size_t first, int64_t room) {
  double min = std::numeric_limits<double>::infinity();
  for (Run& run : runs_) {
    const Step* found = step(run, first, room);
    if (found) min = std::min(min, found->seconds);
  }
  return min;
}

void FastestChoices::complete(Choice& choice, int64_t room) {
  const size_t first = choice.by_segment.size();
  const double min = seconds(first, room);
  const auto best = std::ranges::find_if(runs_, [&](Run& run) {
    const Step* found = step(run, first, room);
    return found && found->seconds == min;
  });
  choice.extra_seconds += min;
  for (size_t s = first; s < m_.segments.size(); ++s) {
    const Step& at = *step(*best, s, room);
    const auto rows = static_cast<size_t>(at.rows);
    const MeasuredOption& option = options_of(s, rows)[static_cast<size_t>(at.option)];
    choice.by_segment.push_back(&option);
    room -= m_.keeps[s] + option.extra_kept;
    const bool has_rows = m_.options[static_cast<size_t>(m_.segments[s].kind)].size() > 1;
    if (has_rows || s == first) choice.row_choice = rows;
  }
}

int64_t Choice::kept(const MeasuredSegments& m, size_t segment) const {
  const MeasuredOption& option = *by_segment[segment];
  const int64_t kept = m.keeps[segment] + option.extra_kept;
  return segment < offloaded.size() ? kept - static_cast<int64_t>(offloaded[segment]) : kept;
}

int64_t needed_bytes(const MeasuredSegments& m, size_t segment, const MeasuredOption& option,
                     const OthersBytes& others) {
  const int64_t needed = static_cast<int64_t>(m.needs[segment]) + option.extra_need;
  return others.with(segment, std::max<int64_t>(needed, 0), option.forward_need);
}

std::optional<Choice> fastest_choice(const MeasuredSegments& m, size_t limit) {
  if (m.min_live > limit) return {};
  FastestChoices choices(m);
  const auto room = static_cast<int64_t>(limit) - static_cast<int64_t>(m.live_at_first);
  if (std::isinf(choices.seconds(/*first=*/0, room))) return {};
  Choice choice;
  choices.complete(choice, room);
  return choice;
}

namespace {

const MeasuredOption& keeping_all(const MeasuredSegments& m, size_t segment, size_t rows) {
  return m.options_of(segment, rows).front();
}

Choice uniform_choice(const MeasuredSegments& m, int kind, size_t option, size_t rows) {
  Choice choice{.row_choice = rows};
  for (size_t s = 0; s < m.segments.size(); ++s) {
    const bool is_of_kind = m.segments[s].kind == kind;
    choice.by_segment.push_back(is_of_kind ? &m.options_of(s, rows)[option]
                                           : &keeping_all(m, s, rows));
    choice.extra_seconds += choice.by_segment.back()->extra_seconds;
  }
  return choice;
}

}  // namespace

Choice keep_all_choice(const MeasuredSegments& m) {
  return uniform_choice(m, most_frequent_kind(m.segments), /*option=*/0, /*rows=*/0);
}

Choice of_first_segments(const MeasuredSegments& m, Choice uniform, size_t count) {
  for (size_t s = count; s < m.segments.size(); ++s) {
    const MeasuredOption& keeps = keeping_all(m, s, uniform.row_choice);
    uniform.extra_seconds += keeps.extra_seconds - uniform.by_segment[s]->extra_seconds;
    uniform.by_segment[s] = &keeps;
  }
  return uniform;
}

std::vector<Choice> uniform_choices(const MeasuredSegments& m) {
  const int kind = most_frequent_kind(m.segments);
  const auto& by_rows = m.options[static_cast<size_t>(kind)];
  std::vector<Choice> all;
  for (size_t rows = 0; rows < m.rows.size(); ++rows) {
    for (size_t o = 0; o < by_rows[by_rows.size() == 1 ? 0 : rows].size(); ++o) {
      all.push_back(uniform_choice(m, kind, o, rows));
    }
  }
  std::ranges::stable_sort(all, {}, &Choice::extra_seconds);
  return all;
}

size_t live_bytes(const MeasuredSegments& m, const Choice& choice) {
  return std::max(m.min_live, live_in_segments(m, choice));
}

size_t live_in_segments(const MeasuredSegments& m, const Choice& choice) {
  auto below = static_cast<int64_t>(m.live_at_first);
  int64_t max = 0;
  for (size_t s = 0; s < choice.by_segment.size(); ++s) {
    max = std::max(max, below + needed_bytes(m, s, *choice.by_segment[s], choice.others));
    below += choice.kept(m, s);
  }
  return static_cast<size_t>(max);
}

Choice in_groups(const MeasuredSegments& m, Choice choice, size_t limit) {
  std::map<int, std::vector<const MeasuredOption*>> by_kind;
  const size_t first = choice.offloaded.size();
  for (size_t s = first; s < m.segments.size(); ++s) {
    by_kind[m.segments[s].kind].push_back(choice.by_segment[s]);
  }
  for (auto& [kind, options] : by_kind) {
    std::ranges::stable_sort(options, [](const MeasuredOption* a, const MeasuredOption* b) {
      return std::tuple(a->extra_kept, a) < std::tuple(b->extra_kept, b);
    });
  }
  Choice grouped = choice;
  std::map<int, size_t> next;
  for (size_t s = first; s < m.segments.size(); ++s) {
    const int kind = m.segments[s].kind;
    grouped.by_segment[s] = by_kind[kind][next[kind]++];
  }
  return live_in_segments(m, grouped) <= limit ? grouped : choice;
}

}  // namespace spool
