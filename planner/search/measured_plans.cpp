// Builds the plans that options make, and derives totals from all measurements.

#include <algorithm>

#include "spool/planner/search/measured_options.h"

namespace spool {

Plan plan_of(const MeasuredSegments& measured, const std::vector<const SegmentOption*>& by_segment,
             const Levers& levers) {
  const Program& program = measured.program;
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

size_t MeasuredSegments::offloadable_bytes(size_t segment, const MeasuredOption& option) const {
  size_t bytes = 0;
  for (const OffloadableValue& v : offloadable[segment]) {
    if (is_kept(option.option, program, segments[segment], v.value)) bytes += v.bytes;
  }
  return bytes;
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
