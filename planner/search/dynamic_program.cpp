#include "spool/planner/search/dynamic_program.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>

namespace spool {
namespace {

// The segments so far, with their last one's option, and the state before it.
struct ChoiceState {
  int64_t kept = 0;
  double seconds = 0;
  int32_t option = -1, before = -1;
};
using Frontier = std::vector<ChoiceState>;  // by rising bytes and falling seconds

// The states that no other one beats, of two such lists.
void merge(const Frontier& a, const Frontier& b, Frontier& merged) {
  merged.clear();
  double least = std::numeric_limits<double>::infinity();
  const auto add = [&](const ChoiceState& state) {
    if (state.seconds >= least) return;
    least = state.seconds;
    if (!merged.empty() && merged.back().kept == state.kept) merged.pop_back();
    merged.push_back(state);
  };
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool first = j == b.size() || (i < a.size() && a[i].kept <= b[j].kept);
    add(first ? a[i++] : b[j++]);
  }
}

// Extends each state by each option of a segment that is within the limit.
Frontier extended(const MeasuredSegments& m, size_t segment,
                  const std::vector<MeasuredOption>& options, const Frontier& before,
                  size_t limit) {
  Frontier all, extended, merged;
  const int64_t keeps = m.keeps[segment];
  for (size_t o = 0; o < options.size(); ++o) {
    const auto needed =
        static_cast<int64_t>(m.live_at_first + needed_bytes(m, segment, options[o]));
    extended.clear();
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].kept + needed > static_cast<int64_t>(limit)) break;
      extended.push_back({.kept = before[i].kept + keeps + options[o].extra_kept,
                          .seconds = before[i].seconds + options[o].extra_seconds,
                          .option = static_cast<int32_t>(o),
                          .before = static_cast<int32_t>(i)});
    }
    if (extended.empty()) continue;
    merge(all, extended, merged);
    std::swap(all, merged);
  }
  return all;
}

// Runs the segments from `frontiers.size() - 1` on; false if no choice is within the limit.
bool extend_to_end(const MeasuredSegments& m, const Choice& begin, size_t row_choice, size_t limit,
                   std::vector<Frontier>& frontiers) {
  while (frontiers.size() <= m.segments.size()) {
    const size_t s = frontiers.size() - 1;
    const size_t own_limit = limit - std::min(limit, begin.returned_at(s));
    frontiers.push_back(extended(m, s, m.options_of(s, row_choice), frontiers.back(), own_limit));
    if (frontiers.back().empty()) return false;
  }
  return true;
}

Choice chosen(const MeasuredSegments& m, const std::vector<Frontier>& frontiers, size_t row_choice,
              const Choice& begin) {
  Choice choice = begin;
  choice.by_segment.resize(m.segments.size());
  choice.row_choice = row_choice;
  choice.extra_seconds = frontiers.back().back().seconds;
  size_t state = frontiers.back().size() - 1;  // the one of the fewest seconds
  for (size_t s = m.segments.size(); s-- > begin.by_segment.size();) {
    const ChoiceState& at = frontiers[s + 1][state];
    choice.by_segment[s] = &m.options_of(s, row_choice)[static_cast<size_t>(at.option)];
    state = static_cast<size_t>(at.before);
  }
  return choice;
}

// The states of the segments whose options are given; the last is empty if they are not within the
// limit.
std::vector<Frontier> given(const MeasuredSegments& m, const Choice& begin, size_t limit) {
  std::vector<Frontier> frontiers{{ChoiceState{}}};
  for (size_t s = 0; s < begin.by_segment.size(); ++s) {
    ChoiceState state = frontiers.back().front();
    const size_t needed =
        m.live_at_first + needed_bytes(m, s, *begin.by_segment[s]) + begin.returned_at(s);
    if (static_cast<int64_t>(needed) + state.kept > static_cast<int64_t>(limit)) return {{}};
    state.kept += begin.kept(m, s);
    state.seconds += begin.by_segment[s]->extra_seconds;
    frontiers.push_back({state});
  }
  return frontiers;
}

// The number of segments before the first that can be cut into chunks.
size_t segments_without_rows(const MeasuredSegments& m) {
  size_t s = 0;
  while (s < m.segments.size() && m.options[static_cast<size_t>(m.segments[s].kind)].size() == 1) {
    ++s;
  }
  return s;
}

}  // namespace

int64_t Choice::kept(const MeasuredSegments& m, size_t segment) const {
  const MeasuredOption& option = *by_segment[segment];
  const int64_t kept = m.keeps[segment] + option.extra_kept;
  if (segment >= sent.size() || sent[segment] == 0) return kept;
  const auto leaves = static_cast<double>(m.sendable_bytes(segment, option)) * sent[segment];
  return kept - static_cast<int64_t>(leaves);
}

size_t needed_bytes(const MeasuredSegments& m, size_t segment, const MeasuredOption& option) {
  return static_cast<size_t>(
      std::max<int64_t>(static_cast<int64_t>(m.needs[segment]) + option.extra_need, 0));
}

std::optional<Choice> fastest_choice(const MeasuredSegments& m, size_t limit,
                                     const std::vector<bool>& rows_allowed, const Choice& begin) {
  if (m.least > limit) return {};
  const size_t shared = segments_without_rows(m);
  std::vector<Frontier> frontiers = given(m, begin, limit);
  if (frontiers.back().empty()) return {};
  std::optional<Choice> best;
  for (size_t rows = 0; rows < m.rows.size(); ++rows) {
    if (!rows_allowed[rows]) continue;
    frontiers.resize(std::min(frontiers.size(), shared + 1));
    if (!extend_to_end(m, begin, rows, limit, frontiers)) continue;
    const double seconds = frontiers.back().back().seconds;
    if (!best || seconds < best->extra_seconds) best = chosen(m, frontiers, rows, begin);
  }
  return best;
}

size_t live_bytes(const MeasuredSegments& m, const Choice& choice) {
  auto below = static_cast<int64_t>(m.live_at_first), most = static_cast<int64_t>(m.least);
  for (size_t s = 0; s < m.segments.size(); ++s) {
    const size_t needed = needed_bytes(m, s, *choice.by_segment[s]) + choice.returned_at(s);
    most = std::max(most, below + static_cast<int64_t>(needed));
    below += choice.kept(m, s);
  }
  return static_cast<size_t>(most);
}

Choice in_groups(const MeasuredSegments& m, Choice choice, size_t limit) {
  std::map<int, std::vector<const MeasuredOption*>> by_kind;
  const size_t first = choice.sent.size();
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
  return live_bytes(m, grouped) <= limit ? grouped : choice;
}

}  // namespace spool
