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
  list_sendable();
  if (bytes_out_ <= 0) return;
  constexpr int parts = 20;
  for (const double price : prices()) {
    for (int part = parts; part > 0; --part) {
      for (const bool divides : {true, false}) {
        const Sending way{.price = price, .part = 1.0 * part / parts, .divides = divides};
        beginnings_.push_back(beginning(way, way.part * bytes_out_, MetaStream::unlimited));
      }
    }
  }
}

void Proposer::list_sendable() {
  const IdTable<NodeId, double> begins = measured_.keep_all.begins(Phase::forward);
  for (size_t s = 0; s < measured_.segments.size(); ++s) {
    const Segment& segment = measured_.segments[s];
    std::vector<Sendable>& all = sendable_.emplace_back();
    for (const MeasuredOption& o : measured_.options_of(s, /*row_choice=*/0)) {
      Sendable& sendable = all.emplace_back();
      for (const SendableValue& v : measured_.sendable[s]) {
        if (is_recomputed(o.option, measured_.program, segment, v.value)) continue;
        const auto bytes = static_cast<double>(v.bytes);
        const NodeId next = measured_.keep_all.values[v.value].first_saved + 1;
        const Shape& shape = measured_.program.values[v.value].spec.shape;
        sendable.values.push_back({.id = v.value,
                                   .bytes = bytes,
                                   .saved = begins.value_or(next, begins.back()) - begins.front(),
                                   .rows = shape.rank() > 0 ? shape[0] : 1});
        sendable.bytes += bytes;
      }
    }
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
  const auto& options = measured_.options_of(first, /*row_choice=*/0);
  for (size_t o = 0; o < options.size(); ++o)
    all.push_back({.bytes = sendable_[first][o].bytes, .seconds = options[o].extra_seconds});
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
Proposer::Beginning Proposer::beginning(const Sending& way, double bytes, size_t limit) const {
  Beginning begin;
  Choice& choice = begin.choice;
  choice.sending = way;
  begin.kept = static_cast<int64_t>(measured_.live_at_first);
  for (size_t s = 0; s + 1 < measured_.segments.size() && bytes > 0; ++s) {
    const auto& options = measured_.options_of(s, /*row_choice=*/0);
    size_t best = options.size();
    double least = INFINITY;
    for (size_t o = 0; o < options.size(); ++o) {
      const size_t needed = needed_bytes(measured_, s, options[o]);
      if (begin.kept + static_cast<int64_t>(needed) > static_cast<int64_t>(limit)) continue;
      const double cost = options[o].extra_seconds + way.price * sendable_[s][o].bytes;
      if (cost >= least) continue;
      best = o;
      least = cost;
    }
    if (best == options.size()) break;
    const Sendable& sendable = sendable_[s][best];
    begin.sendable.push_back(&sendable);
    choice.by_segment.push_back(&options[best]);
    choice.extra_seconds += options[best].extra_seconds;
    double sent = 0;
    for (const SentRows& v : sent_rows(sendable, bytes)) {
      if (!v.is_whole() && !way.divides) continue;
      sent += v.bytes;
      // What stays of a value is copied within the device, when the others leave and come back.
      const Cost copy{.bytes = 2 * (v.value->bytes - v.bytes)};
      if (!v.is_whole()) choice.extra_seconds += 2 * step_.machine.seconds(copy);
    }
    choice.sent.push_back(sendable.bytes > 0 ? sent / sendable.bytes : 0);
    bytes -= sendable.bytes;
    begin.kept += choice.kept(measured_, s);
  }
  return_bytes(begin);
  begin.most = static_cast<int64_t>(live_bytes(measured_, choice));
  return begin;
}

// Whole values while there is room for them, and rows of one more: as many as possible, while few
// stay.
std::vector<Proposer::SentRows> Proposer::sent_rows(const Sendable& sendable, double bytes) {
  std::vector<SentRows> sent;
  std::vector<const Sendable::Value*> others;
  bytes += 1;  // that rounding may have taken
  for (const Sendable::Value& v : sendable.values) {
    if (v.bytes > bytes) {
      others.push_back(&v);
      continue;
    }
    bytes -= v.bytes;
    sent.push_back({.value = &v, .rows = v.rows, .bytes = v.bytes});
  }
  SentRows divided;
  double best = -INFINITY;
  for (const Sendable::Value* v : others) {
    const double row = v->bytes / static_cast<double>(v->rows);
    const double rows = std::floor(bytes / row);
    const double gain = rows * row - (v->bytes - rows * row) / 2;
    if (rows == 0 || gain <= best) continue;
    best = gain;
    divided = {.value = v, .rows = static_cast<int64_t>(rows), .bytes = rows * row};
  }
  if (divided.value) sent.push_back(divided);
  std::ranges::sort(sent, {}, [](const SentRows& rows) { return rows.value->id; });
  return sent;
}

// Bytes of the values whose copies have not ended when the loss begins.
double Proposer::late_bytes(const Beginning& begin) const {
  double late = 0, end = 0;
  for (size_t s = 0; s < begin.sendable.size(); ++s) {
    const Sendable& sendable = *begin.sendable[s];
    for (const SentRows& v : sent_rows(sendable, begin.choice.sent[s] * sendable.bytes)) {
      end = std::max(end, v.value->saved) + v.bytes / link_rate_;
      if (end > measured_.seconds_before_loss) late += v.bytes;
    }
  }
  return late;
}

// Copies back begin as late as they may (planner/offload_schedule.h), by the times of keeping all;
// what comes back for the first segments is live while later ones still run backward.  For the
// segments that send nothing these bytes are rounded up, so that many ways to send share them.
void Proposer::return_bytes(Beginning& begin) const {
  Choice& choice = begin.choice;
  const size_t count = measured_.segments.size(), sending = choice.sent.size();
  choice.returned.assign(count, 0);
  std::vector<double> begins(count);
  std::vector<double> seconds = measured_.backward_seconds;
  double backward = 0, recompute = 0;
  for (size_t s = 0; s < sending; ++s) {
    seconds[s] += choice.by_segment[s]->extra_seconds;
    recompute += choice.by_segment[s]->extra_seconds;
  }
  for (size_t s = count; s-- > 0; backward += seconds[s]) begins[s] = backward;
  double next = backward;
  for (size_t s = 0; s < sending; ++s) {
    const double bytes = choice.sent[s] * begin.sendable[s]->bytes;
    if (bytes <= 0) continue;
    const double copy = fetch_caution * bytes / link_rate_;
    next = std::min(next, begins[s]) - copy;
    for (size_t later = s + 1; later < sending; ++later) {
      const double part = std::clamp((begins[later] + seconds[later] - next) / copy, 0.0, 1.0);
      choice.returned[later] += static_cast<size_t>(part * bytes);
    }
  }
  constexpr double parts = Returning::parts;
  begin.after = {.begin = static_cast<int>(std::floor(parts * next / (backward - recompute))),
                 .late = static_cast<int>(std::ceil(parts * late_bytes(begin) / bytes_out_))};
  const double first = begin.after.begin / parts * (backward - recompute);
  for (size_t s = sending; s < count; ++s) {
    const double end = begins[s] + seconds[s];
    choice.returned[s] =
        static_cast<size_t>(std::max(end - first, 0.0) * link_rate_ / fetch_caution);
  }
  // What leaves while the loss runs is live in it.
  choice.returned.back() += static_cast<size_t>(begin.after.late / parts * bytes_out_);
}

FastestChoices& Proposer::choices_after(const Beginning& begin,
                                        const std::vector<bool>& rows_allowed) {
  const auto known = choices_.find({rows_allowed, begin.after});
  if (known != choices_.end()) return known->second;
  return choices_
      .try_emplace({rows_allowed, begin.after}, measured_, rows_allowed, begin.choice.returned)
      .first->second;
}

std::optional<Choice> Proposer::with_sending(size_t state_on_host, const ProposalLimits& limits) {
  if (measured_.least > limits.step + state_on_host) return {};
  const std::vector<bool> rows = rows_allowed(limits.run + state_on_host);
  const Beginning nothing{.kept = static_cast<int64_t>(measured_.live_at_first)};
  const auto most = static_cast<int64_t>(limits.step + state_on_host);
  const auto seconds = [&](const Beginning& begin, FastestChoices& choices) {
    return begin.choice.extra_seconds +
           choices.seconds(begin.choice.by_segment.size(), most - begin.kept);
  };
  FastestChoices& without = choices_after(nothing, rows);
  const Beginning* best = &nothing;
  double least = seconds(nothing, without);
  // Nothing is faster than if what is sent took no bytes while others run.
  std::vector<std::pair<double, const Beginning*>> order;
  std::deque<Beginning> limited;
  for (const Beginning* begin : beginnings_within(state_on_host, limits, limited)) {
    const double bound = seconds(*begin, without);
    if (bound < least) order.emplace_back(bound, begin);
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, const Beginning*>::first);
  for (const auto& [bound, begin] : order) {
    if (bound >= least) break;
    const double found = seconds(*begin, choices_after(*begin, rows));
    if (found >= least) continue;
    least = found;
    best = begin;
  }
  if (std::isinf(least)) return {};
  Choice choice = best->choice;
  choices_after(*best, rows).complete(choice, most - best->kept);
  return choice;
}

// What may be sent within these limits; `limited` has what is made for them.
std::vector<const Proposer::Beginning*> Proposer::beginnings_within(
    size_t state_on_host, const ProposalLimits& limits, std::deque<Beginning>& limited) const {
  // Of a host that is smaller than what could be sent, as much as a multiple of this part.
  const double part = bytes_out_ / 64;
  const auto left = static_cast<double>(limits.host - std::min(state_on_host, limits.host));
  const double host = std::floor(left / part) * part;
  const size_t limit = limits.step + state_on_host;
  const auto most = static_cast<int64_t>(limit);
  std::vector<const Beginning*> all;
  for (const Beginning& way : beginnings_) {
    const Sending& sending = way.choice.sending;
    const double bytes = std::min(sending.part * bytes_out_, host);
    if (bytes <= 0) continue;
    const bool fits = way.most <= most && bytes == sending.part * bytes_out_;
    const Beginning* begin =
        fits ? &way : &limited.emplace_back(beginning(sending, bytes, limit));
    if (begin->most <= most) all.push_back(begin);
  }
  return all;
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

std::optional<Proposal> Proposer::proposal(size_t state_on_host, const ProposalLimits& limits) {
  if (state_on_host > 0 && least_with(state_on_host) > limits.step) return {};
  const auto choice = with_sending(state_on_host, limits);
  if (!choice) return {};
  const auto on_host = static_cast<double>(state_on_host);
  return Proposal{.choice = *choice,
                  .state_on_host = state_on_host,
                  .seconds = measured_.seconds +
                             static_cast<double>(step_.micro_batches) * choice->extra_seconds +
                             (measured_.state ? streaming_seconds(*measured_.state, on_host) : 0)};
}

std::optional<Proposal> Proposer::fastest(const ProposalLimits& limits) {
  std::optional<Proposal> best = proposal(/*state_on_host=*/0, limits);
  if (!measured_.state) return best;
  const auto seconds_with = [&](double bytes) {
    auto other = proposal(static_cast<size_t>(bytes) / Arena::granule * Arena::granule, limits);
    const double seconds = other ? other->seconds : INFINITY;
    if (other && (!best || seconds < best->seconds)) best = std::move(other);
    return seconds;
  };
  constexpr int parts = 32, sections = 12;
  const auto all = static_cast<double>(std::min(measured_.state->bytes, limits.host));
  for (const MeasuredState::Share& share : measured_.state->shares) {
    if (share.bytes < all / parts) seconds_with(share.bytes);
  }
  for (int i = 1; i <= parts; ++i) seconds_with(all * i / parts);
  if (!best) return {};
  const auto around = static_cast<double>(best->state_on_host);
  least_by_golden_sections(std::max(around - all / parts, 0.0), std::min(around + all / parts, all),
                           sections, seconds_with);
  return best;
}

std::vector<OffloadCandidate> Proposer::sent_values(const Choice& choice,
                                                    IdTable<ValueId, int64_t>& rows) const {
  std::vector<OffloadCandidate> all;
  for (size_t s = 0; s < choice.sent.size(); ++s) {
    const auto& options = measured_.options_of(s, /*row_choice=*/0);
    const Sendable& sendable =
        sendable_[s][static_cast<size_t>(choice.by_segment[s] - options.data())];
    for (const SentRows& v : sent_rows(sendable, choice.sent[s] * sendable.bytes)) {
      rows[v.value->id] = v.is_whole() ? -1 : v.rows;
      all.push_back({.value = v.value->id, .bytes = static_cast<size_t>(v.bytes)});
    }
  }
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
