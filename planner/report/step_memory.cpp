#include "spool/planner/report/step_memory.h"

#include <algorithm>

#include "spool/planner/report/allocation_words.h"

namespace spool {
namespace {

// A part of an allocation's life in one category: after event `begin`, until event `end`.
struct Part {
  const LoggedAllocation* of = nullptr;
  size_t category = 0, begin = 0, end = 0;
};

std::vector<Part> parts_of(const AllocationHistory& history, const AllocationWords& words) {
  std::vector<Part> parts;
  for (const LoggedAllocation& a : history.all) {
    const size_t end = std::min(a.death, history.times.size());
    const size_t offloaded =
        a.label.purpose == Purpose::activation ? std::min(a.offloaded, end) : end;
    parts.push_back({.of = &a, .category = words.category(a), .begin = a.birth, .end = offloaded});
    if (offloaded < end)
      parts.push_back(
          {.of = &a, .category = AllocationWords::copies, .begin = offloaded, .end = end});
  }
  return parts;
}

// A change of live bytes at an event.
struct Change {
  size_t event = 0, category = 0;
  std::ptrdiff_t bytes = 0;
};

// Changes by event; an event that offloads a value has two.
std::vector<Change> changes_of(const std::vector<Part>& parts) {
  std::vector<Change> changes;
  changes.reserve(2 * parts.size());
  for (const Part& p : parts) {
    const auto bytes = static_cast<std::ptrdiff_t>(p.of->bytes);
    changes.push_back({.event = p.begin, .category = p.category, .bytes = bytes});
    changes.push_back({.event = p.end, .category = p.category, .bytes = -bytes});
  }
  std::ranges::stable_sort(changes, {}, &Change::event);
  return changes;
}

// The state after an event, or before the step's first one.
struct Instant {
  double time = 0;
  size_t events = 0;  // that have happened
  size_t total = 0;
};

// The bytes before the step's first event, after each one, and at the end.
std::vector<Instant> all_instants(const RehearsedStep& step, const std::vector<Change>& changes) {
  const std::vector<double>& times = step.allocations.times;
  const ReportClock clock(step);
  std::vector<Instant> all;
  std::ptrdiff_t live = 0;
  auto change = changes.begin();
  const auto add = [&](double time, size_t events) {
    for (; change != changes.end() && change->event < events; ++change) live += change->bytes;
    all.push_back({.time = time, .events = events, .total = static_cast<size_t>(live)});
  };
  add(0, step.first_event);
  for (size_t e = step.first_event; e < times.size(); ++e) add(clock.ms(times[e]), e + 1);
  add(clock.end(), times.size());
  return all;
}

// Keeps of instants of equal times the last one, and before it the one of most bytes if it exceeds
// its neighbours.
std::vector<Instant> distinct_instants(const std::vector<Instant>& all) {
  std::vector<Instant> distinct;
  for (auto first = all.begin(); first != all.end();) {
    const auto end =
        std::find_if(first, all.end(), [&](const Instant& i) { return i.time != first->time; });
    const auto max = std::max_element(
        first, end, [](const Instant& a, const Instant& b) { return a.total < b.total; });
    const Instant& last = *(end - 1);
    const size_t before = distinct.empty() ? 0 : distinct.back().total;
    if (max->total > last.total && max->total > before) distinct.push_back(*max);
    distinct.push_back(last);
    first = end;
  }
  return distinct;
}

size_t index_of_peak(const std::vector<Instant>& instants) {
  return static_cast<size_t>(std::ranges::max_element(instants, {}, &Instant::total) -
                             instants.begin());
}

// Merges neighbours into the one of most bytes, at the time of the first: at most `max` instants,
// one more for the peak and one for the end.
std::vector<Instant> merged(const std::vector<Instant>& all, size_t max) {
  if (all.size() <= max) return all;
  const size_t each = (all.size() + max - 1) / max;
  const size_t peak = index_of_peak(all);
  std::vector<Instant> few;
  size_t count = each;
  for (size_t i = 0; i < all.size(); ++i, ++count) {
    if (count >= each || i == peak || i + 1 == all.size()) {
      few.push_back(all[i]);
      count = 0;
    } else if (all[i].total > few.back().total) {
      few.back() = {.time = few.back().time, .events = all[i].events, .total = all[i].total};
    }
  }
  return few;
}

// The bytes of every category at each instant.
std::vector<std::vector<size_t>> bytes_at(const std::vector<Instant>& instants,
                                          const std::vector<Change>& changes) {
  std::vector<std::vector<size_t>> bytes(AllocationWords::categories);
  std::vector<std::ptrdiff_t> live(bytes.size());
  auto change = changes.begin();
  for (const Instant& instant : instants) {
    for (; change != changes.end() && change->event < instant.events; ++change) {
      live[change->category] += change->bytes;
    }
    for (size_t c = 0; c < live.size(); ++c) bytes[c].push_back(static_cast<size_t>(live[c]));
  }
  return bytes;
}

// The first instant after the event.
size_t first_after(const std::vector<Instant>& instants, size_t event) {
  const auto at = std::ranges::upper_bound(instants, event, {}, &Instant::events);
  return static_cast<size_t>(at - instants.begin());
}

std::vector<MemoryValue> values_of(const std::vector<Part>& parts,
                                   const std::vector<Instant>& instants,
                                   const AllocationWords& words, const StepMemoryLimits& limits) {
  const double min = limits.min_part * static_cast<double>(instants[index_of_peak(instants)].total);
  struct Sized {
    double bytes_times_time = 0;
    const Part* part = nullptr;
    size_t begin = 0, end = 0;
  };
  std::vector<Sized> sized;
  for (const Part& p : parts) {
    const auto bytes = static_cast<double>(p.of->bytes);
    const size_t begin = first_after(instants, p.begin), end = first_after(instants, p.end);
    if (bytes < min || begin >= end) continue;
    const double until = end < instants.size() ? instants[end].time : instants.back().time;
    sized.push_back({bytes * (until - instants[begin].time), &p, begin, end});
  }
  std::ranges::stable_sort(sized, std::ranges::greater{}, &Sized::bytes_times_time);
  if (sized.size() > limits.values) sized.resize(limits.values);
  std::vector<MemoryValue> values;
  for (const Sized& s : sized) {
    auto [name, layer] = words.value(*s.part->of);
    values.push_back({.name = std::move(name),
                      .layer = layer,
                      .category = s.part->category,
                      .bytes = s.part->of->bytes,
                      .begin = s.begin,
                      .end = s.end,
                      .until = words.until(*s.part->of)});
  }
  return values;
}

// The work for which the last allocation before the instant was made.
std::string work_at(const Instant& instant, const std::vector<Part>& parts,
                    const AllocationWords& words) {
  const LoggedAllocation* last = nullptr;
  for (const Part& p : parts) {
    if (p.begin == p.of->birth && p.begin < instant.events) last = p.of;
  }
  return last ? words.made_for(*last) : "";
}

// Removes the categories that never have a live byte.
void drop_empty_categories(StepMemory& memory) {
  std::vector<size_t> places(memory.categories.size());
  size_t count = 0;
  for (size_t c = 0; c < memory.categories.size(); ++c) {
    places[c] = count;
    const bool occurs = std::ranges::any_of(memory.bytes[c], [](size_t b) { return b > 0; });
    if (!occurs) continue;
    std::swap(memory.categories[count], memory.categories[c]);
    std::swap(memory.bytes[count++], memory.bytes[c]);
  }
  memory.categories.resize(count);
  memory.bytes.resize(count);
  for (MemoryValue& value : memory.values) value.category = places[value.category];
}

}  // namespace

StepMemory step_memory(const RehearsedStep& step, const NamedNodes& nodes,
                       const StepMemoryLimits& limits) {
  const AllocationWords words(nodes, step.allocations);
  const std::vector<Part> parts = parts_of(step.allocations, words);
  const std::vector<Change> changes = changes_of(parts);
  const std::vector<Instant> instants =
      merged(distinct_instants(all_instants(step, changes)), limits.instants);
  StepMemory memory{.bytes = bytes_at(instants, changes),
                    .peak = index_of_peak(instants),
                    .values = values_of(parts, instants, words, limits)};
  memory.peak_is_in = work_at(instants[memory.peak], parts, words);
  for (size_t c = 0; c < AllocationWords::categories; ++c) {
    memory.categories.push_back(AllocationWords::category_name(c));
  }
  for (const Instant& instant : instants) {
    memory.times.push_back(instant.time);
    memory.total.push_back(instant.total);
  }
  drop_empty_categories(memory);
  return memory;
}

}  // namespace spool
