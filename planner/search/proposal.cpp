#include "spool/planner/search/proposal.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "spool/planner/search/golden_sections.h"

namespace spool {
namespace {

// The part of the bytes that a link could move at most which is sent: copies begin a little late
// and end a little early.
constexpr double link_use = 0.97;

double seconds_per_byte(const Machine& machine, OffloadTarget target) {
  return 1 / std::min(machine.to_host_bytes_per_second, machine.from_host_bytes_per_second) +
         (target == OffloadTarget::disk ? 1 / machine.disk_bytes_per_second : 0);
}

// The number of rows of a value of which a part is sent.
int64_t rows_of(const Spec& spec, double part) {
  const int64_t rows = spec.shape.rank() > 0 ? spec.shape[0] : 1;
  return static_cast<int64_t>(std::floor(part * static_cast<double>(rows)));
}

}  // namespace

Proposer::Proposer(const SearchedStep& step, const MeasuredSegments& measured, const Levers& levers)
    : step_(step), measured_(measured), levers_(levers) {
  for (const int64_t rows : measured.rows)
    other_peaks_.push_back(step.other_peak(rows, levers.fixed));
  if (!levers.send_to) return;
  const double out = measured.seconds_before_loss + measured.seconds_of_loss;
  const double back = measured.seconds_after_loss - measured.seconds_of_loss;
  link_rate_ = 1 / seconds_per_byte(step.machine, *levers.send_to);
  bytes_out_ = link_use * link_rate_ * std::min(out, back / fetch_caution);
  bytes_before_loss_ = link_use * link_rate_ * measured.seconds_before_loss;
  for (const double part : {1.0, 0.6, 0.3}) {
    for (const double price : prices()) ways_.push_back({.price = price, .part = part});
  }
}

// At each, another option of the first segment that can send is the cheapest.
std::vector<double> Proposer::prices() const {
  size_t first = 0;
  while (first < measured_.segments.size() && measured_.segments[first].candidates.empty()) ++first;
  if (first == measured_.segments.size()) return {0};
  struct Corner {
    double bytes = 0, seconds = 0;
  };
  std::vector<Corner> all, hull;
  for (const MeasuredOption& o : measured_.options_of(first, /*row_choice=*/0)) {
    const auto bytes = static_cast<double>(measured_.sendable_bytes(first, o));
    all.push_back({.bytes = bytes, .seconds = o.extra_seconds});
  }
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

// The first segments, with the options that are cheapest at this price, as far as what they keep
// comes to so many bytes, which are sent.
Choice Proposer::beginning(const Sending& way, double bytes, size_t limit) const {
  Choice begin;
  auto below = static_cast<int64_t>(measured_.live_at_first);
  for (size_t s = 0; s + 1 < measured_.segments.size() && bytes > 0; ++s) {
    const MeasuredOption* best = nullptr;
    double least = 0;
    for (const MeasuredOption& o : measured_.options_of(s, /*row_choice=*/0)) {
      const auto needed = static_cast<int64_t>(needed_bytes(measured_, s, o));
      if (below + needed > static_cast<int64_t>(limit)) continue;
      const double cost =
          o.extra_seconds + way.price * static_cast<double>(measured_.sendable_bytes(s, o));
      if (!best || cost < least) {
        best = &o;
        least = cost;
      }
    }
    if (!best) break;
    const auto sendable = static_cast<double>(measured_.sendable_bytes(s, *best));
    begin.by_segment.push_back(best);
    begin.sent.push_back(sendable > 0 ? std::min(bytes / sendable, 1.0) : 0);
    bytes -= sendable;
    below += begin.kept(measured_, s);
  }
  begin.sending = way;
  return_bytes(begin);
  return begin;
}

// Copies back begin as late as they may (planner/offload_schedule.h), by the times of keeping all;
// what comes back for the first segments is live while later ones still run backward.
void Proposer::return_bytes(Choice& begin) const {
  const size_t count = measured_.segments.size();
  begin.returned.assign(count, 0);
  std::vector<double> begins(count);
  double backward = 0;
  for (size_t s = count; s-- > 0; backward += measured_.backward_seconds[s]) begins[s] = backward;
  double next = INFINITY, sent = 0;
  for (size_t s = 0; s < begin.sent.size(); ++s) {
    const double bytes =
        begin.sent[s] * static_cast<double>(measured_.sendable_bytes(s, *begin.by_segment[s]));
    if (bytes <= 0) continue;
    sent += bytes;
    const double seconds = fetch_caution * bytes / link_rate_;
    next = std::min(next, begins[s]) - seconds;
    for (size_t later = s + 1; later < count; ++later) {
      const double end = begins[later] + measured_.backward_seconds[later];
      const double part = std::clamp((end - next) / seconds, 0.0, 1.0);
      begin.returned[later] += static_cast<size_t>(part * bytes);
    }
  }
  // What leaves while the loss runs is live in it.
  begin.returned.back() += static_cast<size_t>(std::max(sent - bytes_before_loss_, 0.0));
}

std::optional<Choice> Proposer::with_sending(size_t limit, const std::vector<bool>& rows_allowed,
                                             size_t host_bytes,
                                             const std::vector<Sending>& ways) const {
  std::optional<Choice> best = fastest_choice(measured_, limit, rows_allowed);
  if (bytes_out_ <= 0 || (best && best->extra_seconds <= 0)) return best;
  const double most = std::min(bytes_out_, static_cast<double>(host_bytes));
  for (const Sending& way : ways) {
    const auto choice =
        fastest_choice(measured_, limit, rows_allowed, beginning(way, way.part * most, limit));
    if (choice && (!best || choice->extra_seconds < best->extra_seconds)) best = choice;
  }
  return best;
}

std::vector<bool> Proposer::rows_allowed(size_t bytes) const {
  std::vector<bool> allowed;
  for (const size_t peak : other_peaks_) allowed.push_back(peak <= bytes);
  return allowed;
}

// The most bytes that are live outside of all segments, mostly when the optimizer updates: less of
// the state, and the buckets that stream the rest, which are of up to three eighths of it.
size_t Proposer::least_with(size_t state_on_host) const {
  const MeasuredState& state = *measured_.state;
  const size_t buckets =
      state.least + state.bytes - std::min(measured_.least, state.least + state.bytes);
  return measured_.least - std::min(measured_.least, state_on_host) +
         std::min(state_on_host / 8 * 3, buckets);
}

std::optional<Proposal> Proposer::proposal(size_t state_on_host, const ProposalLimits& limits,
                                           const std::vector<Sending>& ways) const {
  if (state_on_host > 0 && least_with(state_on_host) > limits.step) return {};
  const auto choice =
      with_sending(limits.step + state_on_host, rows_allowed(limits.run + state_on_host),
                   limits.host - std::min(state_on_host, limits.host), ways);
  if (!choice) return {};
  const double streaming = measured_.state ? measured_.state->seconds_per_byte : 0;
  return Proposal{.choice = *choice,
                  .state_on_host = state_on_host,
                  .seconds = measured_.seconds +
                             static_cast<double>(step_.micro_batches) * choice->extra_seconds +
                             static_cast<double>(state_on_host) * streaming};
}

std::optional<Proposal> Proposer::fastest(const ProposalLimits& limits) const {
  std::optional<Proposal> best = proposal(/*state_on_host=*/0, limits, ways_);
  if (!measured_.state) return best;
  const auto granules = [](double bytes) {
    return static_cast<size_t>(bytes) / Arena::granule * Arena::granule;
  };
  const auto keep_better = [&](double bytes, const std::vector<Sending>& ways) {
    auto other = proposal(granules(bytes), limits, ways);
    const double seconds = other ? other->seconds : INFINITY;
    if (other && (!best || seconds < best->seconds)) best = std::move(other);
    return seconds;
  };
  // The sum is convex: if the first part on the host does not pay, none does.
  constexpr double first_part = 1.0 / 128;
  constexpr int sections = 12;
  const auto all = static_cast<double>(std::min(measured_.state->bytes, limits.host));
  if (best) {
    const double kept = best->seconds;
    if (keep_better(first_part * all, ways_) >= kept) return best;
  } else {
    keep_better(all, ways_);
  }
  if (!best) return {};
  const std::vector<Sending> way{best->choice.sending};
  // Of too little on the host nothing fits, and its cost is infinite.
  (void)least_by_golden_sections(/*low=*/0, all, sections,
                                 [&](double bytes) { return keep_better(bytes, way); });
  keep_better(static_cast<double>(best->state_on_host), ways_);
  return best;
}

// Whole values while there is room for them, and rows of one more; what stays of a value is copied
// within the device.
std::vector<OffloadCandidate> Proposer::sent_values(const Choice& choice,
                                                    IdTable<ValueId, int64_t>& rows) const {
  std::vector<OffloadCandidate> all;
  for (size_t s = 0; s < choice.sent.size(); ++s) {
    double left =
        choice.sent[s] * static_cast<double>(measured_.sendable_bytes(s, *choice.by_segment[s]));
    for (const SendableValue& v : measured_.sendable[s]) {
      const SegmentOption& option = choice.by_segment[s]->option;
      if (!is_kept(option, measured_.program, measured_.segments[s], v.value)) continue;
      const auto bytes = static_cast<double>(v.bytes);
      const double part = choice.sent[s] < 1 ? std::min(left / bytes, 1.0) : 1;
      left -= part * bytes;
      const Spec& spec = measured_.program.values[v.value].spec;
      rows[v.value] = part < 1 ? rows_of(spec, part) : -1;
      if (rows[v.value] == 0) continue;
      all.push_back({.value = v.value, .bytes = static_cast<size_t>(part * bytes)});
    }
  }
  std::ranges::sort(all, {}, &OffloadCandidate::value);
  return all;
}

Plan Proposer::plan_of(const Proposal& proposal) const {
  const Choice& choice = proposal.choice;
  std::vector<const SegmentOption*> options;
  for (const MeasuredOption* o : choice.by_segment) options.push_back(&o->option);
  Plan plan = spool::plan_of(measured_, options, levers_);
  if (proposal.state_on_host > 0) {
    plan.optimizer_state = OptimizerState::streamed;
    plan.state_bytes_on_device = measured_.state->bytes - proposal.state_on_host;
  }
  IdTable<ValueId, int64_t> rows(measured_.program.values.size());
  const std::vector<OffloadCandidate> candidates = sent_values(choice, rows);
  if (candidates.empty()) return plan;
  const RehearsedTape tape = step_.rehearse_tape(plan);
  plan.offloads = schedule_offloads(candidates, tape.survey, step_.machine, *levers_.send_to,
                                    CopiesEnd::before_backward);
  for (Offload& o : plan.offloads) {
    plan.placement[o.value] = Placement::offload;
    o.rows = rows[o.value];
  }
  return plan;
}

}  // namespace spool
