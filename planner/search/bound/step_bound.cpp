#include "spool/planner/search/bound/step_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// The minimum seconds that `bytes` bytes of state on the host cost.
double min_seconds(const MeasuredState& state, double bytes) {
  return state.last_seconds_per_byte * std::max(bytes - state.free_bytes, 0.0);
}

// What a rehearsal that keeps all measured of each node.
struct NodeCosts {
  IdTable<NodeId, double> forward_seconds;
  // Most bytes in forward, in backward but for unread inputs, and just before backward.
  IdTable<NodeId, size_t> live_in_forward, live_in_backward, live_before;
  IdTable<NodeId, double> forward_begins, backward_begins, backward_ends;  // seconds
  double begin = 0, end = 0;  // of the first micro-batch
};

// Bytes that each node reads in forward alone and earlier nodes save: they need not be live in its
// backward.
IdTable<NodeId, size_t> unread_in_backward(const Program& program) {
  IdTable<NodeId, size_t> bytes(program.nodes.size());
  IdTable<ValueId, bool> is_saved(program.values.size());
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    const Node& node = program.nodes[n];
    std::set<ValueId> unread(node.inputs.begin(), node.inputs.end());
    for (const ValueId v : node.saves) unread.erase(v);
    for (const ValueId v : unread) {
      const bool counts = is_saved[v] && program.values[v].producer >= 0;
      if (counts) bytes[n] += round_up(program.values[v].spec.nbytes(), Arena::granule);
    }
    for (const ValueId v : node.saves) is_saved[v] = true;
  }
  return bytes;
}

NodeCosts costs_of(const MeasuredSegments& m) {
  const size_t count = m.program->nodes.size();
  NodeCosts costs{.forward_seconds = IdTable<NodeId, double>(count),
                  .live_in_forward = IdTable<NodeId, size_t>(count),
                  .live_in_backward = IdTable<NodeId, size_t>(count),
                  .live_before = IdTable<NodeId, size_t>(count),
                  .forward_begins = IdTable<NodeId, double>(count),
                  .backward_begins = IdTable<NodeId, double>(count),
                  .backward_ends = IdTable<NodeId, double>(count),
                  .begin = m.keep_all.works.front().begin};
  const IdTable<NodeId, size_t> unread = unread_in_backward(*m.program);
  const auto raise = [](size_t& max, size_t bytes) { max = std::max(max, bytes); };
  for (const SurveyedWork& work : m.keep_all.works) {
    const NodeId n = work.node;
    if (n < 0) continue;
    const bool is_forward = work.phase == Phase::forward;
    if (is_forward) raise(costs.live_in_forward[n], work.live);
    if (!is_forward) raise(costs.live_in_backward[n], work.live - unread[n]);
    if (work.phase == Phase::backward) raise(costs.live_before[n], work.live_before);
    if (work.micro_batch > 0) continue;
    const double end = work.begin + work.seconds;
    costs.end = std::max(costs.end, end);
    if (is_forward) {
      costs.forward_seconds[n] += work.seconds;
      costs.forward_begins[n] = work.begin;
    } else if (work.phase == Phase::backward) {
      costs.backward_begins[n] = work.begin;
      costs.backward_ends[n] = end;
    }
  }
  return costs;
}

// Bytes that are live in each node's backward whatever saved values are kept.
IdTable<NodeId, int64_t> fixed_bytes(const Program& program, const IdTable<NodeId, size_t>& live) {
  IdTable<ValueId, bool> is_saved(program.values.size());
  IdTable<NodeId, int64_t> fixed(program.nodes.size());
  int64_t below = 0;
  for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
    for (const ValueId v : program.nodes[n].saves) {
      if (program.values[v].producer < 0 || is_saved[v]) continue;
      below += static_cast<int64_t>(round_up(program.values[v].spec.nbytes(), Arena::granule));
      is_saved[v] = true;
    }
    fixed[n] = static_cast<int64_t>(live[n]) - below;
  }
  return fixed;
}

// Bytes of what nodes of the segment save and no earlier segment saves.
size_t bytes_saved_first(const Program& program, const Segment& s) {
  IdTable<ValueId, bool> is_saved(program.values.size());
  size_t bytes = 0;
  for (NodeId n = 0; n <= s.last; ++n) {
    for (const ValueId v : program.nodes[n].saves) {
      const bool counts = n >= s.first && !is_saved[v] && program.values[v].producer >= 0;
      if (counts) bytes += round_up(program.values[v].spec.nbytes(), Arena::granule);
      is_saved[v] = true;
    }
  }
  return bytes;
}

}  // namespace

struct StepBound::Builder {
  const MeasuredSegments& measured;
  StepBound& bound;
  const NodeCosts costs = costs_of(measured);
  const IdTable<NodeId, int64_t> fixed = fixed_bytes(*measured.program, costs.live_in_backward);
  IdTable<NodeId, double> unforced = costs.forward_seconds;  // 0 for what regions run again

  const Segment& segment_of(NodeId n) const {
    return *std::ranges::find_if(measured.segments, [&](const Segment& s) { return n <= s.last; });
  }

  NodeId fullest(const Segment& s) const {
    NodeId fullest = s.first;
    for (NodeId n = s.first; n <= s.last; ++n) {
      if (fixed[n] > fixed[fullest]) fullest = n;
    }
    return fullest;
  }

  // The loss, and the fullest nodes of five layers.
  std::set<NodeId> instants() const {
    std::set<NodeId> nodes;
    std::vector<const Segment*> layers;
    for (const Segment& s : measured.segments) {
      if (!s.candidates.empty()) layers.push_back(&s);
      for (NodeId n = s.first; n <= s.last; ++n) {
        if (max_chunks(*measured.program, n) > 1) nodes.insert(n);
      }
    }
    for (size_t quarter = 0; quarter <= 4 && !layers.empty(); ++quarter) {
      nodes.insert(fullest(*layers[(layers.size() - 1) * quarter / 4]));
    }
    return nodes;
  }

  void add_layers() {
    for (const Segment& s : measured.segments) {
      const NodeId node = fullest(s);
      Layer layer{.fixed = static_cast<double>(fixed[node]), .region_seconds = infinite};
      for (const MeasuredRegion& r : measured.regions[static_cast<size_t>(s.kind)]) {
        if (node < s.first + r.first || node > s.first + r.last) continue;
        layer.region_seconds = std::min(layer.region_seconds, r.min_seconds);
        for (const NodeId n : r.run_again) unforced[s.first + n] = 0;
      }
      if (std::isfinite(layer.region_seconds)) bound.layers_.push_back(layer);
    }
  }

  InstantLink link(double end_before, double begin_after) const {
    return {.bytes_per_second = bound.bytes_per_second_,
            .seconds_before = end_before - costs.begin,
            .seconds_after = costs.end - begin_after};
  }

  // The loss forms its gradient in forward.
  Moment in_forward(NodeId n, const IdTable<NodeId, double>& seconds) const {
    const double at = costs.forward_begins[n];
    const size_t live = std::max(costs.live_in_forward[n], costs.live_in_backward[n]);
    return {.bound = InstantBound::in_forward(*measured.program, n, seconds, live),
            .link = link(at + costs.forward_seconds[n], at)};
  }
  Moment in_backward(NodeId n, const IdTable<NodeId, double>& seconds) const {
    const size_t live = costs.live_in_backward[n];
    return {.bound = InstantBound::in_backward(*measured.program, n, seconds, live),
            .link = link(costs.backward_ends[n], costs.backward_begins[n])};
  }
  Moment before(const Segment& s, const IdTable<NodeId, double>& seconds) const {
    const double at = costs.backward_begins[s.last];
    const size_t others = costs.live_before[s.last] - bytes_saved_first(*measured.program, s);
    return {.bound = InstantBound::below(*measured.program, s.first, seconds, others),
            .link = link(at, at)};
  }

  void add_instant(NodeId n) {
    const auto& seconds = costs.forward_seconds;
    const bool is_loss = max_chunks(*measured.program, n) > 1;
    Instant instant{.node = n,
                    .moment = is_loss ? in_forward(n, seconds) : in_backward(n, seconds)};
    const Segment& s = segment_of(n);
    const auto& regions = measured.regions[static_cast<size_t>(s.kind)];
    if (!is_loss && !regions.empty()) {
      const auto& seconds_of = &MeasuredRegion::min_seconds;
      instant.min_of_regions = std::ranges::min_element(regions, {}, seconds_of)->min_seconds;
      instant.before = before(s, seconds);
    }
    if (!bound.layers_.empty()) {
      instant.if_forced = instant.before ? before(s, unforced)
                          : is_loss      ? in_forward(n, unforced)
                                         : in_backward(n, unforced);
    }
    bound.instants_.push_back(std::move(instant));
  }
};

StepBound::StepBound(const MeasuredSegments& measured, int64_t micro_batches,
                     double bytes_per_second)
    : measured_(measured),
      micro_batches_(static_cast<double>(micro_batches)),
      bytes_per_second_(bytes_per_second) {
  for (const Segment& s : measured.segments) {
    gain_of_regions_ += measured.gain_of_regions[static_cast<size_t>(s.kind)];
  }
  Builder builder{.measured = measured, .bound = *this};
  add_rows();
  builder.add_layers();
  for (const NodeId n : builder.instants()) builder.add_instant(n);
}

// `forced`: seconds of forced regions, during which copies can run, too.
double StepBound::seconds_within(Moment& moment, double bytes, double forced) const {
  if (bytes_per_second_ <= 0) return moment.bound.seconds_within(bytes);
  InstantLink link = moment.link;
  link.seconds_before += forced;
  link.seconds_after += forced;
  return moment.bound.seconds_within(bytes, link);
}

double StepBound::forced_seconds(double bytes) const {
  double seconds = 0;
  for (const Layer& layer : layers_) seconds += layer.fixed > bytes ? layer.region_seconds : 0;
  return seconds;
}

double StepBound::chunks_of(size_t row_choice) const {
  // The first choice, all rows, is 0; the second is half of them.
  return row_choice == 0 ? 1
                         : std::round(2.0 * static_cast<double>(measured_.rows[1]) /
                                      static_cast<double>(measured_.rows[row_choice]));
}

// A loss may have any number of chunks between two choices: its seconds are then at least those of
// the choice with fewer chunks, and its bytes at least those of the other.
void StepBound::add_rows() {
  constexpr double rounding = 8 * Arena::granule;
  const auto live_of = [&](size_t choice, double less) {
    std::vector<double> live;
    for (const int64_t bytes : measured_.live_of_rows[choice]) {
      live.push_back(static_cast<double>(bytes) - less);
    }
    return live;
  };
  for (size_t i = 0; i < measured_.rows.size(); ++i) {
    const double seconds = measured_.seconds_of_rows[i];
    rows_.push_back({.seconds = seconds, .live = live_of(i, 0)});
    const bool is_last = i + 1 == measured_.rows.size();
    if (is_last || chunks_of(i + 1) <= chunks_of(i) + 1) continue;
    rows_.push_back({.seconds = seconds, .live = live_of(i + 1, rounding)});
  }
  std::ranges::stable_sort(rows_, {}, &Rows::seconds);
}

// Seconds of a micro-batch beyond keeping all with these rows.
double StepBound::extra_seconds(double bytes, const Rows& rows) {
  const double forced = std::max(forced_seconds(bytes), 0.0);
  double extra = forced;
  for (Instant& i : instants_) {
    const double available = bytes - rows.live[i.node];
    double seconds = seconds_within(i.moment, available);
    if (i.before && seconds > 0) {
      const double in_chunks = seconds_within(*i.before, available);
      seconds = std::min(seconds, in_chunks + i.min_of_regions);
    }
    if (forced > 0) {
      seconds = std::max(seconds, forced + seconds_within(*i.if_forced, available, forced));
    }
    extra = std::max(extra, seconds);
  }
  return extra - gain_of_regions_;
}

// The same of a step.  Each byte of state on the host costs seconds and frees a byte.  In a part of
// the shares the sum is at least what most bytes leave to the others, and what fewest cost; the
// part where that is least is halved, again and again.
double StepBound::extra_seconds_with_state(double bytes, const Rows& rows) {
  struct Part {
    double low = 0, high = 0, seconds = 0;
  };
  const auto part = [&](double low, double high) {
    const double others = micro_batches_ * extra_seconds(bytes + high, rows);
    return Part{low, high, others + min_seconds(*measured_.state, low) - measured_.state->gain};
  };
  constexpr int max_halves = 96;
  std::vector<Part> parts{part(0, static_cast<double>(measured_.state->bytes))};
  for (int i = 0; i < max_halves; ++i) {
    Part& least = *std::ranges::min_element(parts, {}, &Part::seconds);
    if (least.high - least.low < Arena::granule || std::isinf(least.seconds)) break;
    const double middle = (least.low + least.high) / 2, high = least.high;
    least = part(least.low, middle);
    parts.push_back(part(middle, high));
  }
  return std::ranges::min_element(parts, {}, &Part::seconds)->seconds;
}

double StepBound::seconds_within(size_t bytes) {
  double min = infinite;
  const auto limit = static_cast<double>(bytes);
  const double gain = measured_.state ? measured_.state->gain : 0;
  for (const Rows& rows : rows_) {
    const double kept_all = measured_.seconds + rows.seconds;
    const double min_of_choice = kept_all - micro_batches_ * gain_of_regions_ - gain;
    if (min_of_choice >= min) continue;
    const double kept =
        bytes >= measured_.min_live ? micro_batches_ * extra_seconds(limit, rows) : infinite;
    const double shared = measured_.state ? extra_seconds_with_state(limit, rows) : kept;
    min = std::min({min, kept_all + kept, kept_all + shared});
  }
  // A plan's time is another sum of the same seconds, of which each may be rounded.
  constexpr double rounding = 1e-12;
  return min * (1 - rounding);
}

}  // namespace spool
