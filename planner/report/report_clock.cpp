#include "spool/planner/report/report_clock.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace spool {
namespace {

constexpr const char* forward = "forward";
constexpr const char* loss_phase = "loss";
constexpr const char* backward = "backward";
constexpr const char* optimizer = "optimizer";

double begin_of(const std::vector<TraceSpan>& trace) {
  const auto first = std::ranges::find(trace, TraceLane::compute, &TraceSpan::lane);
  return first == trace.end() ? 0 : first->begin;
}

// The phase that the span is a part of; `now` if the span does not tell.
const char* phase_of(const TraceSpan& span, NodeId loss, const char* now) {
  const TraceContext& work = span.context;
  if (!work) return now;
  const std::string_view task = work.task;
  if (task == optimizer) return optimizer;
  if (!work.op) return now;
  if (task == forward) return work.node >= loss ? loss_phase : forward;
  // What is recomputed for a layer may be any node, even one of the loss.
  return work.node >= loss && now != backward ? loss_phase : backward;
}

}  // namespace

ReportClock::ReportClock(const RehearsedStep& step) : begin_(begin_of(step.trace)) {
  const double whole = 1e3 * step.report.seconds;
  constexpr int digits = 6;
  const int above = whole > 0 ? static_cast<int>(std::floor(std::log10(whole))) : 0;
  scale_ = std::pow(10.0, std::max(digits - above, 0));
  end_ = rounded(whole);
}

double ReportClock::rounded(double ms) const { return std::round(ms * scale_) / scale_; }

double ReportClock::ms(double seconds) const {
  return std::clamp(rounded(1e3 * (seconds - begin_)), 0.0, end_);
}

std::vector<StepPhase> step_phases(const RehearsedStep& step, NodeId loss) {
  const ReportClock clock(step);
  std::vector<StepPhase> phases{{.name = forward}};
  for (const TraceSpan& span : step.trace) {
    if (span.lane != TraceLane::compute) continue;
    const char* const phase = phase_of(span, loss, phases.back().name);
    if (phase == phases.back().name) continue;
    const double at = clock.ms(span.begin);
    phases.back().end = at;
    phases.push_back({.name = phase, .begin = at});
  }
  phases.back().end = clock.end();
  return phases;
}

}  // namespace spool
