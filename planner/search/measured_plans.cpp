// Builds the plans that options make, compares options, and derives totals from measurements.

#include <algorithm>

#include "spool/planner/search/measured_options.h"

namespace spool {

Plan plan_of(const MeasuredSegments& measured, const std::vector<const SegmentOption*>& by_segment,
             const Levers& levers) {
  const Program& program = *measured.program;
  Plan plan = levers.fixed;
  plan.chunks = {};
  if (levers.placement) plan.placement.assign(program.values.size(), Placement::keep);
  int64_t rows = 0;
  for (size_t s = 0; s < by_segment.size(); ++s) {
    apply(*by_segment[s], program, measured.segments[s], plan);
    if (chunkable_rows(program, measured.segments[s]) > 0) rows = by_segment[s]->chunk_rows;
  }
  sort_regions(plan);
  if (rows > 0) plan.chunks = chunk_rows(program, rows).chunks;
  return plan;
}

MeasuredSegments MeasuredSegments::without_state() const {
  MeasuredSegments same = *this;
  same.state.reset();
  same.rehearsals = 0;
  return same;
}

size_t MeasuredSegments::offloadable_bytes(size_t segment, const MeasuredOption& option) const {
  size_t bytes = 0;
  for (const OffloadableValue& v : offloadable[segment]) {
    if (is_kept(option.option, *program, segments[segment], v.value)) bytes += v.bytes;
  }
  return bytes;
}

std::vector<MeasuredOption> undominated(std::vector<MeasuredOption> all) {
  const auto beats = [](const MeasuredOption& a, const MeasuredOption& b) {
    return a.extra_seconds <= b.extra_seconds && a.extra_kept <= b.extra_kept &&
           a.extra_need <= b.extra_need && a.forward_need <= b.forward_need;
  };
  std::vector<MeasuredOption*> by_time;
  for (MeasuredOption& option : all) by_time.push_back(&option);
  std::stable_sort(by_time.begin() + 1, by_time.end(), [](const auto* a, const auto* b) {
    return a->extra_seconds < b->extra_seconds;
  });
  std::vector<MeasuredOption> left;
  for (MeasuredOption* option : by_time) {
    const auto is_beaten = [&](const MeasuredOption& by) { return beats(by, *option); };
    if (std::ranges::none_of(left, is_beaten)) left.push_back(std::move(*option));
  }
  return left;
}

std::vector<std::vector<MeasuredOption>> undominated_by_region(
    const std::vector<MeasuredOption>& options) {
  std::vector<std::vector<MeasuredOption>> all;
  for (const MeasuredOption& option : options) {
    const auto has_it = [&](const std::vector<MeasuredOption>& with) {
      return with.front().option.region == option.option.region;
    };
    if (!option.option.region) continue;
    auto at = std::ranges::find_if(all, has_it);
    if (at == all.end()) at = all.emplace(at);
    at->push_back(option);
  }
  for (auto& with_region : all) with_region = undominated(std::move(with_region));
  return all;
}

double step_seconds(const RehearsedStep& step, int64_t micro_batches) {
  const Survey& survey = step.survey;
  const auto left_out = static_cast<double>(micro_batches - survey.micro_batches);
  if (left_out <= 0) return step.report.seconds;
  // All micro-batches but the first and the last do what the rehearsed middle one does.
  const auto begin_of = [&](int micro_batch) {
    return std::ranges::find(survey.works, micro_batch, &SurveyedWork::micro_batch)->begin;
  };
  return step.report.seconds + left_out * (begin_of(2) - begin_of(1));
}

}  // namespace spool
