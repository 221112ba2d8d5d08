#include "spool/planner/search/proposal.h"

#include <algorithm>
#include <cmath>

#include "spool/planner/search/chunk_moves.h"
#include "spool/planner/search/golden_sections.h"

namespace spool {
namespace {

// The seconds that `bytes` bytes of state on the host cost.  Between two shares they lie on the
// line through those below or on that through those above, whichever is higher: up to some share,
// the update of what stays hides the copies.
double streaming_seconds(const MeasuredState& state, double bytes) {
  const auto& all = state.shares;
  if (bytes <= 0 || all.empty()) return 0;
  const auto after = static_cast<size_t>(
      std::ranges::lower_bound(all, bytes, {}, &MeasuredState::Share::bytes) - all.begin());
  if (after == 0) return all.front().seconds;
  if (after == all.size()) return all.back().seconds;
  const auto line = [&](size_t second) {
    const MeasuredState::Share &a = all[second - 1], &b = all[second];
    return a.seconds + (bytes - a.bytes) / (b.bytes - a.bytes) * (b.seconds - a.seconds);
  };
  const double below = after > 1 ? line(after - 1) : all[0].seconds;
  const double above = after + 1 < all.size() ? line(after + 1) : line(after);
  return std::min(std::max(below, above), line(after));
}

}  // namespace

Proposer::Proposer(const SearchedStep& step, const MeasuredSegments& measured, const Levers& levers)
    : step_(step),
      measured_(measured),
      levers_(levers),
      ways_(step, measured, levers),
      families_(families_of(measured)) {
  other_peak_ = step.other_peak(levers.fixed);
  // The price of all bytes that could leave the device, as a part of a step's time.
  constexpr double price = 5e-4;
  const double state = measured.state ? static_cast<double>(measured.state->bytes) : 0;
  const double all = ways_.max_bytes() + state;
  if (all > 0) seconds_per_host_byte_ = price * measured.seconds / all;
}

FastestChoices& Proposer::choices_after(const Returning& returning) {
  const auto known = choices_.find({family_, returning});
  if (known != choices_.end()) return known->second;
  return choices_
      .try_emplace({family_, returning}, measured_, ways_.live_of_others(returning),
                   families_[family_])
      .first->second;
}

std::optional<Choice> Proposer::with_offloading(size_t state_on_host, const ProposalLimits& limits,
                                                double& offloaded) {
  const size_t limit = limits.step + state_on_host;
  if (min_with(state_on_host) > limits.step) return {};
  if (other_peak_ > limits.run + state_on_host) return {};
  const auto room_after = [&](const Beginning& begin) {
    return static_cast<int64_t>(limit) - begin.kept;
  };
  const double host_byte = seconds_per_host_byte_ / static_cast<double>(step_.micro_batches);
  const auto cost = [&](const Beginning& begin, FastestChoices& choices) {
    return begin.choice.extra_seconds + host_byte * begin.offloaded +
           choices.seconds(begin.choice.by_segment.size(), room_after(begin));
  };
  const Beginning nothing{.kept = static_cast<int64_t>(measured_.live_at_first)};
  FastestChoices& without = choices_after({});
  const Beginning* best = &nothing;
  double min = cost(nothing, without);
  // Each way has a dynamic program of its own, which one that gains next to nothing is not worth.
  const double min_gain = 2e-4 * measured_.seconds / static_cast<double>(step_.micro_batches);
  // A way is never faster than if what comes back took no room.
  std::vector<std::pair<double, const Beginning*>> order;
  std::deque<Beginning> limited;
  const size_t host = limits.host - std::min(state_on_host, limits.host);
  for (const Beginning* begin : ways_.within(limit, host, limited)) {
    order.emplace_back(cost(*begin, without), begin);
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, const Beginning*>::first);
  for (const auto& [bound, begin] : order) {
    if (bound >= min - min_gain) break;
    const double found = cost(*begin, choices_after(begin->returning));
    if (found >= min) continue;
    min = found;
    best = begin;
  }
  if (std::isinf(min)) return {};
  offloaded = best->offloaded;
  Choice choice = best->choice;
  choices_after(best->returning).complete(choice, room_after(*best));
  return choice;
}

// The most bytes that are live outside of all segments, mostly when the optimizer updates: less of
// the state, and the buckets that stream the rest, which are of up to three eighths of it.
size_t Proposer::min_with(size_t state_on_host) const {
  if (state_on_host == 0) return measured_.min_live;
  const MeasuredState& state = *measured_.state;
  const size_t buckets =
      state.min_live + state.bytes - std::min(measured_.min_live, state.min_live + state.bytes);
  const double part = static_cast<double>(state_on_host) / static_cast<double>(state.bytes);
  const auto of_all = static_cast<double>(measured_.min_live) - static_cast<double>(state.min_live);
  const size_t saved = std::max(state_on_host, static_cast<size_t>(std::max(part * of_all, 0.0)));
  return measured_.min_live - std::min(measured_.min_live, saved) +
         std::min(state_on_host / 8 * 3, buckets);
}

std::optional<Proposal> Proposer::proposal(size_t state_on_host, const ProposalLimits& limits) {
  double offloaded = 0;
  const auto choice = with_offloading(state_on_host, limits, offloaded);
  if (!choice) return {};
  const auto on_host = static_cast<double>(state_on_host);
  const double seconds = measured_.seconds +
                         static_cast<double>(step_.micro_batches) * choice->extra_seconds +
                         (measured_.state ? streaming_seconds(*measured_.state, on_host) : 0);
  return Proposal{.choice = *choice,
                  .state_on_host = state_on_host,
                  .seconds = seconds,
                  .cost = seconds + seconds_per_host_byte_ * (on_host + offloaded)};
}

std::optional<Proposal> Proposer::fastest(const ProposalLimits& limits) {
  std::optional<Proposal> found = fastest_of_family(limits);
  if (found) return found;
  family_ = 1;
  found = fastest_of_family(limits);
  family_ = 0;
  return found;
}

std::optional<Proposal> Proposer::fastest_of_family(const ProposalLimits& limits) {
  std::optional<Proposal> best = proposal(/*state_on_host=*/0, limits);
  if (!measured_.state) return best;
  const auto cost_with = [&](double bytes) {
    auto other = proposal(static_cast<size_t>(bytes) / Arena::granule * Arena::granule, limits);
    const double cost = other ? other->cost : INFINITY;
    if (other && (!best || cost < best->cost)) best = std::move(other);
    return cost;
  };
  constexpr int parts = 32, sections = 12;
  const auto all = static_cast<double>(std::min(measured_.state->bytes, limits.host));
  for (const MeasuredState::Share& share : measured_.state->shares) {
    if (share.bytes < all / parts) cost_with(share.bytes);
  }
  for (int i = 1; i <= parts; ++i) cost_with(all * i / parts);
  if (!best) return {};
  const auto around = static_cast<double>(best->state_on_host);
  (void)min_by_golden_sections(std::max(around - all / parts, 0.0),
                               std::min(around + all / parts, all), sections, cost_with);
  return best;
}

std::optional<Proposal> Proposer::fastest_of(size_t family, size_t state_on_host,
                                             const ProposalLimits& limits) {
  family_ = family;
  const size_t bytes = std::min(state_on_host, limits.host) / Arena::granule * Arena::granule;
  std::optional<Proposal> found = proposal(bytes, limits);
  family_ = 0;
  return found;
}

std::vector<Proposal> Proposer::uniform() const {
  std::vector<Proposal> all;
  for (Choice& choice : uniform_choices(measured_)) {
    const double extra = static_cast<double>(step_.micro_batches) * choice.extra_seconds;
    all.push_back({.choice = std::move(choice), .seconds = measured_.seconds + extra});
  }
  return all;
}

std::vector<Proposal> Proposer::with_room_for_more_rows(size_t limit, double seconds) const {
  constexpr size_t max_count = 8;
  const std::vector<Proposal> all = uniform();
  const auto alike =
      std::ranges::find(measured_.segments, most_frequent_kind(measured_.segments), &Segment::kind);
  const auto option_of = [&](const Proposal& p) -> const SegmentOption& {
    return p.choice.by_segment[static_cast<size_t>(alike - measured_.segments.begin())]->option;
  };
  std::vector<std::pair<double, const Proposal*>> found;
  for (const Proposal& more : all) {
    if (more.seconds >= seconds) break;
    const size_t of_more = live_bytes(measured_, more.choice);
    // Rows between half and all make two chunks, as the half does.
    if (of_more <= limit || more.choice.row_choice == 0) continue;
    const auto has_fewer = [&](const Proposal& p) {
      const SegmentOption &own = option_of(p), &wanted = option_of(more);
      return p.choice.row_choice == more.choice.row_choice + 1 &&
             own.recomputed == wanted.recomputed && own.region == wanted.region;
    };
    const auto fewer = std::ranges::find_if(all, has_fewer);
    if (fewer == all.end()) continue;
    const size_t of_fewer = live_bytes(measured_, fewer->choice);
    if (of_fewer > limit) continue;
    const double between =
        seconds_between({of_fewer, fewer->seconds}, {of_more, more.seconds}, limit);
    if (between < seconds) found.emplace_back(between, &*fewer);
  }
  std::ranges::stable_sort(found, {}, &std::pair<double, const Proposal*>::first);
  if (found.size() > max_count) found.resize(max_count);
  std::vector<Proposal> proposals;
  for (const auto& [between, fewer] : found) proposals.push_back(*fewer);
  return proposals;
}

std::vector<Proposal> Proposer::alike_at_first(size_t limit) const {
  std::vector<Proposal> all;
  for (const Choice& choice : uniform_choices(measured_)) {
    if (live_bytes(measured_, choice) > limit) continue;
    size_t count = 0;
    Proposal first;
    do {
      first.choice = of_first_segments(measured_, choice, ++count);
    } while (live_bytes(measured_, first.choice) > limit);
    const auto micro_batches = static_cast<double>(step_.micro_batches);
    first.seconds = measured_.seconds + micro_batches * first.choice.extra_seconds;
    all.push_back(std::move(first));
  }
  std::ranges::stable_sort(all, {}, &Proposal::seconds);
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
  IdTable<ValueId, int64_t> rows(measured_.program->values.size());
  const std::vector<OffloadCandidate> candidates = ways_.values(choice, rows);
  if (candidates.empty()) return plan;
  const RehearsedTape tape = step_.rehearse_tape(plan);
  plan.offloads = schedule_offloads(candidates, tape.survey, step_.machine, *levers_.offload_to,
                                    CopiesEnd::before_backward);
  for (Offload& o : plan.offloads) {
    plan.placement[o.value] = Placement::offload;
    o.rows = rows[o.value];
  }
  return plan;
}

}  // namespace spool
