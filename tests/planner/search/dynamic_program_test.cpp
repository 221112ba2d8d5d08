// runs: numbers
// The dynamic program's choice of an option for each segment, against every choice.

#include "spool/planner/search/dynamic_program.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/planner/search/synthetic.h"

namespace spool::testing {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

MeasuredOption random_option(Random& random) {
  return {.extra_seconds = static_cast<double>(draw(random, 0, 40)) / 8,
          .extra_kept = draw(random, -3, 9) * static_cast<int64_t>(Arena::granule),
          .extra_need = draw(random, -4, 4) * static_cast<int64_t>(Arena::granule)};
}

// Segments of a few kinds; the last kind may have choices of rows.
MeasuredSegments random_segments(Random& random) {
  MeasuredSegments m;
  const int64_t count = draw(random, 1, 5), kinds = draw(random, 1, 3);
  const int64_t row_choices = draw_bool(random) ? 3 : 1;
  m.rows.assign(static_cast<size_t>(row_choices), 0);
  m.seconds_of_rows.assign(m.rows.size(), 0);
  for (int64_t kind = 0; kind < kinds; ++kind) {
    const bool has_rows = kind + 1 == kinds && row_choices > 1;
    std::vector<std::vector<MeasuredOption>> by_rows(has_rows ? m.rows.size() : 1);
    for (auto& options : by_rows) {
      for (int64_t o = draw(random, 1, 4); o > 0; --o) options.push_back(random_option(random));
    }
    m.options.push_back(std::move(by_rows));
  }
  for (int64_t s = 0; s < count; ++s) {
    const auto node = static_cast<NodeId>(s);
    const bool is_last = s + 1 == count;
    const auto kind = static_cast<int>(is_last ? kinds - 1 : draw(random, 0, kinds - 1));
    m.segments.push_back({.first = node, .last = node, .kind = kind});
    m.keeps.push_back(draw(random, -2, 6) * static_cast<int64_t>(Arena::granule));
    m.needs.push_back(static_cast<size_t>(draw(random, 4, 20)) * Arena::granule);
  }
  m.live_at_first = static_cast<size_t>(draw(random, 0, 9)) * Arena::granule;
  m.min_live = static_cast<size_t>(draw(random, 0, 30)) * Arena::granule;
  return m;
}

// Calls visit(choice) for every choice of options and rows.
template <class Visit>
void for_each_choice(const MeasuredSegments& m, const Visit& visit) {
  for (size_t rows = 0; rows < m.rows.size(); ++rows) {
    size_t count = 1;
    for (size_t s = 0; s < m.segments.size(); ++s) count *= m.options_of(s, rows).size();
    for (size_t number = 0; number < count; ++number) {
      Choice choice{.row_choice = rows};
      for (size_t s = 0, left = number; s < m.segments.size(); ++s) {
        const auto& options = m.options_of(s, rows);
        choice.by_segment.push_back(&options[left % options.size()]);
        choice.extra_seconds += choice.by_segment.back()->extra_seconds;
        left /= options.size();
      }
      visit(choice);
    }
  }
}

double fastest(const MeasuredSegments& m, size_t limit) {
  double min = infinite;
  for_each_choice(m, [&](const Choice& choice) {
    if (live_bytes(m, choice) <= limit) min = std::min(min, choice.extra_seconds);
  });
  return min;
}

size_t min_live(const MeasuredSegments& m) {
  size_t min = std::numeric_limits<size_t>::max();
  for_each_choice(m, [&](const Choice& choice) { min = std::min(min, live_bytes(m, choice)); });
  return min;
}

double seconds_of(const Choice& choice) {
  double sum = 0;
  for (const MeasuredOption* o : choice.by_segment) sum += o->extra_seconds;
  return sum;
}

TEST(DynamicProgram, FindsTheFastestOfAllChoices) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const MeasuredSegments m = random_segments(random);
    for (size_t granules = 0; granules < 80; ++granules) {
      const size_t limit = granules * Arena::granule;
      const auto found = fastest_choice(m, limit);
      const double wanted = fastest(m, limit);
      ASSERT_EQ(found.has_value(), wanted < infinite) << granules;
      if (!found) continue;
      EXPECT_EQ(found->extra_seconds, wanted) << granules;
      EXPECT_EQ(seconds_of(*found), wanted) << granules;
      EXPECT_LE(live_bytes(m, *found), limit);
    }
  }
}

// The minimum seconds of a family's choices within the limit.
double fastest_of(MeasuredSegments& m, const Family& family, size_t limit) {
  auto& options = m.options[static_cast<size_t>(most_frequent_kind(m.segments))];
  const auto all = options;
  if (family.region) {
    for (auto& of_rows : options) of_rows = m.options_with_region[*family.region];
  }
  double min = infinite;
  for_each_choice(m, [&](const Choice& choice) {
    if (family.row_choice && choice.row_choice != *family.row_choice) return;
    if (live_in_segments(m, choice) <= limit) min = std::min(min, choice.extra_seconds);
  });
  options = all;
  return min;
}

// Each option of the most frequent kind stands for one with a region of its own.
TEST(DynamicProgram, FindsTheFastestOfAFamily) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    MeasuredSegments m = random_segments(random);
    const auto kind = static_cast<size_t>(most_frequent_kind(m.segments));
    for (const MeasuredOption& o : m.options[kind].front()) m.options_with_region.push_back({o});
    for (const Family& family : families_of(m)) {
      for (size_t granules = 0; granules < 80; granules += 7) {
        const size_t limit = granules * Arena::granule;
        const double wanted = fastest_of(m, family, limit);
        const auto room = static_cast<int64_t>(limit) - static_cast<int64_t>(m.live_at_first);
        FastestChoices choices(m, {}, family);
        EXPECT_EQ(choices.seconds(/*first=*/0, room), wanted) << granules;
        if (wanted == infinite) continue;
        Choice choice;
        choices.complete(choice, room);
        EXPECT_EQ(seconds_of(choice), wanted) << granules;
      }
    }
  }
}

// The minimum seconds of the choices that begin like this one.
double fastest_from(const MeasuredSegments& m, size_t limit, const Choice& begin) {
  double min = infinite;
  for_each_choice(m, [&](Choice choice) {
    for (size_t s = 0; s < begin.by_segment.size(); ++s) {
      if (choice.by_segment[s] != begin.by_segment[s]) return;
    }
    choice.others = begin.others;
    if (live_bytes(m, choice) <= limit) min = std::min(min, choice.extra_seconds);
  });
  return min;
}

// The options of the first segments of a random choice.
Choice random_beginning(Random& random, const MeasuredSegments& m) {
  Choice begin;
  const int64_t count = draw(random, 0, static_cast<int64_t>(m.segments.size()) - 1);
  for (size_t s = 0; s < static_cast<size_t>(count); ++s) {
    const auto& options = m.options_of(s, /*row_choice=*/0);
    const int64_t last = static_cast<int64_t>(options.size()) - 1;
    begin.by_segment.push_back(&options[static_cast<size_t>(draw(random, 0, last))]);
    begin.extra_seconds += begin.by_segment.back()->extra_seconds;
  }
  return begin;
}

TEST(DynamicProgram, ServesEveryLimitAndEveryBeginning) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    MeasuredSegments m = random_segments(random);
    if (m.rows.size() > 1) continue;  // beginnings have the first choice of rows
    m.min_live = 0;
    OthersBytes others;
    for (size_t s = 0; s < m.segments.size(); ++s) {
      others.backward.push_back(static_cast<size_t>(draw(random, 0, 5)) * Arena::granule);
      others.forward.push_back(static_cast<size_t>(draw(random, 0, 20)) * Arena::granule);
    }
    FastestChoices choices(m, others);
    for (int i = 0; i < 20; ++i) {
      Choice begin = random_beginning(random, m);
      begin.others = others;
      const size_t limit = static_cast<size_t>(draw(random, 0, 60)) * Arena::granule;
      if (live_bytes(m, begin) > limit) continue;
      auto room = static_cast<int64_t>(limit) - static_cast<int64_t>(m.live_at_first);
      for (size_t s = 0; s < begin.by_segment.size(); ++s) room -= begin.kept(m, s);
      const double wanted = fastest_from(m, limit, begin);
      EXPECT_EQ(begin.extra_seconds + choices.seconds(begin.by_segment.size(), room), wanted);
      if (wanted == infinite) continue;
      choices.complete(begin, room);
      EXPECT_EQ(seconds_of(begin), wanted);
      EXPECT_EQ(begin.extra_seconds, wanted);
      EXPECT_LE(live_bytes(m, begin), limit);
    }
  }
}

TEST(DynamicProgram, GroupsEqualSegmentsWithinTheLimit) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const MeasuredSegments m = random_segments(random);
    const size_t min = min_live(m);
    for (size_t more = 0; more < 40; more += 3) {
      const size_t limit = min + more * Arena::granule;
      const auto choice = fastest_choice(m, limit);
      ASSERT_TRUE(choice);
      const Choice grouped = in_groups(m, *choice, limit);
      EXPECT_LE(live_bytes(m, grouped), limit);
      EXPECT_EQ(seconds_of(grouped), seconds_of(*choice));
      EXPECT_EQ(grouped.row_choice, choice->row_choice);
      auto sorted = choice->by_segment, sorted_groups = grouped.by_segment;
      std::ranges::sort(sorted);
      std::ranges::sort(sorted_groups);
      EXPECT_EQ(sorted, sorted_groups);
    }
  }
}

// A segment that frees more than it keeps leaves less live than before it.
TEST(DynamicProgram, ASegmentMayFreeMoreThanItKeeps) {
  constexpr auto granule = static_cast<int64_t>(Arena::granule);
  MeasuredSegments m;
  m.segments = {{.first = 0, .last = 0, .kind = 0},
                {.first = 1, .last = 1, .kind = 1},
                {.first = 2, .last = 2, .kind = 2}};
  m.seconds_of_rows = {0};
  m.keeps = {0, 0, 0};
  m.needs = {4 * Arena::granule, 5 * Arena::granule, 6 * Arena::granule};
  m.options = {
      {{{.extra_seconds = 0, .extra_kept = 4 * granule}}},
      {{{.extra_seconds = 0, .extra_kept = 0}, {.extra_seconds = 1, .extra_kept = -3 * granule}}},
      {{{.extra_seconds = 0}}}};
  EXPECT_EQ(fastest_choice(m, 20 * Arena::granule)->extra_seconds, 0);
  EXPECT_EQ(fastest_choice(m, 10 * Arena::granule)->extra_seconds, 0);
  const auto tight = fastest_choice(m, 9 * Arena::granule);
  ASSERT_TRUE(tight);
  EXPECT_EQ(tight->extra_seconds, 1);
}

}  // namespace
}  // namespace spool::testing
