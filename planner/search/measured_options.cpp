#include "spool/planner/search/measured_options.h"

#include <algorithm>
#include <set>

#include "spool/planner/chunks.h"

namespace spool {
namespace {

// What a rehearsal measured of one segment.
struct SegmentCosts {
  size_t live_before = 0, max_in_forward = 0, max_in_backward = 0;  // bytes
  double seconds = 0;                                               // of a micro-batch, in the mean
};

struct RehearsedCosts {
  std::vector<SegmentCosts> segments = {};
  IdTable<NodeId, size_t> live = {};  // most bytes in each node, beyond those before its segment
  size_t outside = 0;                 // most bytes live outside of all segments
};

// The rehearsal and the segment in which an option is tried.
struct OptionTrial {
  size_t round = 0, segment = 0;
};

// Halves, down to one row or to so many chunks that more save next to nothing.
std::vector<int64_t> row_choices(int64_t rows) {
  std::vector<int64_t> choices{0};
  for (int64_t r = (rows + 1) / 2; r > 0 && choices.back() != r && rows / r <= max_tried_chunks;
       r = (r + 1) / 2) {
    choices.push_back(r);
  }
  return choices;
}

class Measurement {
 public:
  Measurement(const SearchedStep& step, const Levers& levers) : step_(step), levers_(levers) {}

  MeasuredSegments run() {
    all_.program = std::make_shared<const Program>(step_.rehearse_tape({}).program);
    all_.segments = segments_of(*all_.program, levers_.fixed.regions);
    choose_rows();
    keep_all();
    list_options();
    try_options();
    collect();
    compare_rows();
    return std::move(all_);
  }

 private:
  size_t kinds() const { return by_kind_.size(); }
  const Segment& sample(size_t kind) const { return all_.segments[by_kind_[kind].front()]; }

  void choose_rows() {
    int64_t max = 0;
    for (size_t s = 0; s < all_.segments.size(); ++s) {
      const auto kind = static_cast<size_t>(all_.segments[s].kind);
      if (kind >= by_kind_.size()) by_kind_.resize(kind + 1);
      by_kind_[kind].push_back(s);
      segment_of_.resize(static_cast<size_t>(all_.segments[s].last) + 1, s);
      max = std::max(max, chunkable_rows(*all_.program, all_.segments[s]));
    }
    all_.rows = levers_.loss_rows ? std::vector{*levers_.loss_rows} : row_choices(max);
    limit_candidates();
  }

  // Where choices of rows multiply the options, takes fewer candidates, so that no kind has many
  // more options than one without rows.
  void limit_candidates() {
    size_t candidates = max_candidates;
    for (size_t choices = 1; choices < all_.rows.size() && candidates > 3; choices *= 2) {
      --candidates;
    }
    for (Segment& s : all_.segments) {
      const bool has_rows = chunkable_rows(*all_.program, s) > 0;
      const size_t max = candidates + (has_gathered(*all_.program, s) ? 1 : 0);
      if (has_rows && s.candidates.size() > max) s.candidates.resize(max);
    }
  }

  RehearsedStep rehearse(const std::vector<const SegmentOption*>& chosen) {
    ++all_.rehearsals;
    return step_.rehearse(plan_of(all_, chosen, levers_), std::nullopt, {.survey = true});
  }

  RehearsedCosts costs_of(const Survey& survey) const {
    RehearsedCosts costs{.segments = std::vector<SegmentCosts>(all_.segments.size()),
                         .live = IdTable<NodeId, size_t>(all_.program->nodes.size())};
    std::vector<bool> has_begun(all_.segments.size());
    for (const SurveyedWork& work : survey.works) {
      if (work.node < 0) {
        costs.outside = std::max(costs.outside, work.live);
        continue;
      }
      const size_t s = segment_of_[work.node];
      SegmentCosts& segment = costs.segments[s];
      // The first node of a region in chunks runs again for each chunk.
      if (!has_begun[s]) {
        segment.live_before = segment.max_in_forward = segment.max_in_backward = work.live_before;
        has_begun[s] = true;
      }
      const bool is_forward = work.phase == Phase::forward;
      size_t& max = is_forward ? segment.max_in_forward : segment.max_in_backward;
      max = std::max(max, work.live);
      size_t& live = costs.live[work.node];
      live = std::max(live, work.live - segment.live_before);
      segment.seconds += weight(survey, work.micro_batch) * work.seconds;
    }
    return costs;
  }

  // The weight of a rehearsed micro-batch in the mean of all: the first writes gradients, later
  // ones add to them, and the middle one stands for those that were left out.
  double weight(const Survey& survey, int micro_batch) const {
    const auto all = static_cast<double>(step_.micro_batches);
    const bool stands_for_others = micro_batch == 1 && step_.micro_batches > survey.micro_batches;
    return (stands_for_others ? all - 2 : 1) / all;
  }

  void keep_all() {
    const SegmentOption keep{.chunk_rows = all_.rows.front()};
    RehearsedStep kept = rehearse(std::vector<const SegmentOption*>(all_.segments.size(), &keep));
    base_ = costs_of(kept.survey);
    all_.live_at_first = base_.segments.front().live_before;
    all_.min_live = base_.outside;
    for (size_t s = 0; s < all_.segments.size(); ++s) {
      all_.needs.push_back(base_.segments[s].max_in_backward - base_.segments[s].live_before);
      all_.keeps.push_back(bytes_kept(base_, s));
    }
    all_.seconds = step_seconds(kept, step_.micro_batches);
    all_.keep_all = std::move(kept.survey);
    find_offloadable();
    if (levers_.state_share) measure_state();
  }

  // Finds values that backward reads and that are large enough for copies to run at full speed.
  void find_offloadable() {
    constexpr size_t min_bytes = size_t{1} << 20;
    all_.offloadable.resize(all_.segments.size());
    const Survey& survey = all_.keep_all;
    for (ValueId v = 0; v < survey.values.next_id(); ++v) {
      const SurveyedValue& value = survey.values[v];
      const bool is_kept = value.first_saved >= 0 && all_.program->values[v].producer >= 0;
      if (!is_kept || value.bytes < min_bytes) continue;
      all_.offloadable[segment_of_[value.first_saved]].push_back(
          {.value = v, .bytes = value.bytes});
    }
    const IdTable<NodeId, double> begins = survey.begins(Phase::forward);
    const NodeId loss = all_.segments.back().first;
    all_.seconds_before_loss = begins[loss] - begins.front();
    all_.backward_seconds.resize(all_.segments.size());
    for (const SurveyedWork& work : survey.works) {
      if (work.node < 0 || work.micro_batch > 0) continue;
      const double end = work.begin + work.seconds - begins[loss];
      all_.seconds_after_loss = std::max(all_.seconds_after_loss, end);
      const bool is_last = segment_of_[work.node] + 1 == all_.segments.size();
      if (work.phase == Phase::forward && is_last) all_.seconds_of_loss += work.seconds;
      if (work.phase == Phase::forward) continue;
      all_.backward_seconds[segment_of_[work.node]] += work.seconds;
    }
  }

  // The costs of a step that streams all state but `bytes_on_device`.
  struct StreamedCosts {
    double host_bytes = 0, extra_seconds = 0;
    size_t outside = 0;
  };
  StreamedCosts stream_all_but(size_t bytes_on_device) {
    const SegmentOption keep{.chunk_rows = all_.rows.front()};
    Plan plan =
        plan_of(all_, std::vector<const SegmentOption*>(all_.segments.size(), &keep), levers_);
    plan.optimizer_state = OptimizerState::streamed;
    plan.state_bytes_on_device = bytes_on_device;
    ++all_.rehearsals;
    const RehearsedStep streamed = step_.rehearse(plan, std::nullopt, {.survey = true});
    const RehearsedCosts costs = costs_of(streamed.survey);
    return {.host_bytes = static_cast<double>(all_.live_at_first) -
                          static_cast<double>(costs.segments.front().live_before),
            .extra_seconds = step_seconds(streamed, step_.micro_batches) - all_.seconds,
            .outside = costs.outside};
  }

  // State on the host is copied in while the device updates; its cost is at least the time of its
  // copies.
  void measure_state() {
    const StreamedCosts all = stream_all_but(0);
    if (all.host_bytes <= 0) return;
    all_.state = {.bytes = static_cast<size_t>(all.host_bytes), .min_live = all.outside};
    MeasuredState& state = *all_.state;
    MeasuredState::Share half;
    for (const double part : {1.0 / 256, 1.0 / 64, 1.0 / 32, 1.0 / 16, 1.0 / 8, 0.5}) {
      const StreamedCosts some = stream_all_but(static_cast<size_t>((1 - part) * all.host_bytes));
      if (some.host_bytes <= half.bytes) continue;
      half = {.bytes = some.host_bytes, .seconds = some.extra_seconds};
      state.shares.push_back(half);
    }
    state.shares.push_back({.bytes = all.host_bytes, .seconds = all.extra_seconds});
    double update = 0;
    for (const SurveyedWork& work : all_.keep_all.works) {
      if (work.phase == Phase::optimizer) update += work.seconds;
    }
    const auto is_gain = [](const MeasuredState::Share& share) { return share.seconds < 0; };
    if (std::ranges::any_of(state.shares, is_gain)) state.gain = update;
    const double bytes = all.host_bytes - half.bytes;
    const double price = bytes > 0 ? (all.extra_seconds - half.seconds) / bytes : 0;
    if (price <= 0) return;
    state.last_seconds_per_byte = price;
    state.free_bytes = std::max(all.host_bytes - all.extra_seconds / price, update / price);
  }

  void list_options() {
    for (size_t kind = 0; kind < kinds(); ++kind) {
      std::vector<SegmentOption> options{{}};
      if (levers_.placement) {
        options = recompute_options(*all_.program, sample(kind), levers_.fixed.regions);
      }
      if (chunkable_rows(*all_.program, sample(kind)) > 0) {
        options = with_rows(options);
      } else if (levers_.placement && levers_.regions) {
        const auto in_chunks = region_options(*all_.program, sample(kind));
        options.insert(options.end(), in_chunks.begin(), in_chunks.end());
      }
      listed_.push_back(std::move(options));
    }
  }
  std::vector<SegmentOption> with_rows(const std::vector<SegmentOption>& options) const {
    std::vector<SegmentOption> all;
    for (const int64_t rows : all_.rows) {
      for (SegmentOption option : options) {
        option.chunk_rows = rows;
        all.push_back(std::move(option));
      }
    }
    return all;
  }

  OptionTrial trial(size_t kind, size_t option) const {
    const std::vector<size_t>& segments = by_kind_[kind];
    return {.round = option / segments.size(), .segment = segments[option % segments.size()]};
  }

  void try_options() {
    size_t rounds = 0;
    for (size_t kind = 0; kind < kinds(); ++kind) {
      rounds = std::max(rounds, trial(kind, listed_[kind].size() - 1).round + 1);
    }
    const SegmentOption keep{.chunk_rows = all_.rows.front()};
    for (size_t round = 0; round < rounds; ++round) {
      std::vector<const SegmentOption*> chosen(all_.segments.size(), &keep);
      for (size_t kind = 0; kind < kinds(); ++kind) {
        for (size_t o = 0; o < listed_[kind].size(); ++o) {
          const OptionTrial t = trial(kind, o);
          if (t.round == round) chosen[t.segment] = &listed_[kind][o];
        }
      }
      tried_.push_back(costs_of(rehearse(chosen).survey));
    }
  }

  int64_t bytes_kept(const RehearsedCosts& costs, size_t s) const {
    if (s + 1 == all_.segments.size()) return 0;
    return static_cast<int64_t>(costs.segments[s + 1].live_before) -
           static_cast<int64_t>(costs.segments[s].live_before);
  }

  MeasuredOption measured(size_t kind, size_t o) const {
    const auto [round, s] = trial(kind, o);
    const SegmentCosts& base = base_.segments[s];
    // The first option keeps all, as the base does.
    const RehearsedCosts& tried = o == 0 ? base_ : tried_[round];
    const SegmentCosts& costs = tried.segments[s];
    return {.option = listed_[kind][o],
            .extra_seconds = costs.seconds - base.seconds,
            .extra_kept = bytes_kept(tried, s) - bytes_kept(base_, s),
            .extra_need = static_cast<int64_t>(costs.max_in_backward - costs.live_before) -
                          static_cast<int64_t>(base.max_in_backward - base.live_before),
            .forward_need = static_cast<int64_t>(costs.max_in_forward - costs.live_before)};
  }

  // Seconds of these nodes' forward, if none of them ran in chunks.
  double seconds_again(const Segment& segment, const std::vector<NodeId>& nodes) const {
    double seconds = 0;
    for (const SurveyedWork& work : all_.keep_all.works) {
      const bool counts = work.phase == Phase::forward && work.micro_batch == 0;
      const NodeId node = work.node - segment.first;
      if (counts && std::ranges::binary_search(nodes, node)) seconds += work.seconds;
    }
    return seconds;
  }

  // Adds an option to what is known of its region.
  void add_to(std::vector<MeasuredRegion>& regions, size_t kind, const MeasuredOption& option) {
    const SegmentRegion& region = *option.option.region;
    const auto is_it = [&](const MeasuredRegion& r) {
      return r.first == region.first && r.last == region.last;
    };
    auto at = std::ranges::find_if(regions, is_it);
    if (at == regions.end()) {
      regions.push_back({.first = region.first,
                         .last = region.last,
                         .min_seconds = option.extra_seconds,
                         .run_again = nodes_run_again(*all_.program, sample(kind), region)});
      at = std::prev(regions.end());
    }
    at->min_seconds = std::min(at->min_seconds, option.extra_seconds);
    if (!option.option.recomputed.empty()) return;
    double& gain = all_.gain_of_regions[kind];
    const double whole = seconds_again(sample(kind), at->run_again);
    gain = std::max(gain, whole - option.extra_seconds);
  }

  void collect() {
    for (size_t kind = 0; kind < kinds(); ++kind) {
      const bool has_rows = chunkable_rows(*all_.program, sample(kind)) > 0;
      std::vector<std::vector<MeasuredOption>> by_rows(has_rows ? all_.rows.size() : 1);
      all_.gain_of_regions.push_back(0);
      std::vector<MeasuredRegion>& regions = all_.regions.emplace_back();
      for (size_t o = 0; o < listed_[kind].size(); ++o) {
        const size_t row_choice = o / (listed_[kind].size() / by_rows.size());
        MeasuredOption& option = by_rows[row_choice].emplace_back(measured(kind, o));
        if (option.option.region) add_to(regions, kind, option);
      }
      if (static_cast<int>(kind) == most_frequent_kind(all_.segments)) {
        all_.options_with_region = undominated_by_region(by_rows.front());
      }
      for (auto& options : by_rows) options = undominated(std::move(options));
      all_.options.push_back(std::move(by_rows));
    }
  }

  // Compares the choices of rows by the options that recompute nothing.
  void compare_rows() {
    for (size_t choice = 0; choice < all_.rows.size(); ++choice) {
      double seconds = 0;
      IdTable<NodeId, int64_t> live(all_.program->nodes.size());
      for (size_t kind = 0; kind < kinds(); ++kind) {
        if (chunkable_rows(*all_.program, sample(kind)) == 0) continue;
        const size_t keeps = choice * listed_[kind].size() / all_.rows.size();
        if (keeps == 0) continue;
        const auto [round, s] = trial(kind, keeps);
        const auto segments = static_cast<double>(by_kind_[kind].size());
        const double extra = tried_[round].segments[s].seconds - base_.segments[s].seconds;
        seconds += static_cast<double>(step_.micro_batches) * extra * segments;
        for (const size_t other : by_kind_[kind]) {
          const NodeId shift = all_.segments[other].first - all_.segments[s].first;
          for (NodeId n = all_.segments[s].first; n <= all_.segments[s].last; ++n) {
            live[n + shift] =
                static_cast<int64_t>(tried_[round].live[n]) - static_cast<int64_t>(base_.live[n]);
          }
        }
      }
      all_.seconds_of_rows.push_back(seconds);
      all_.live_of_rows.push_back(std::move(live));
    }
  }

  const SearchedStep& step_;
  const Levers& levers_;
  MeasuredSegments all_;
  std::vector<std::vector<size_t>> by_kind_;        // segments
  std::vector<std::vector<SegmentOption>> listed_;  // of each kind
  IdTable<NodeId, size_t> segment_of_;
  RehearsedCosts base_;
  std::vector<RehearsedCosts> tried_;  // by round
};

}  // namespace

MeasuredSegments measure_segments(const SearchedStep& step, const Levers& levers) {
  return Measurement(step, levers).run();
}

}  // namespace spool
