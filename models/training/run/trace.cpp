#include "spool/models/training/run/trace.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "spool/planner/report/exposed_exchanges.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

// Empty without ranks.
std::string exposed_exchanges(const std::vector<TraceSpan>& spans) {
  const bool has_exchanges =
      std::ranges::any_of(spans, [](auto& s) { return s.lane == TraceLane::exchange; });
  return has_exchanges ? format_seconds(exposed_exchange_seconds(spans)) : "";
}

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

}  // namespace

StepTrace::StepTrace(fs::path path) : path_(std::move(path)) {
  check_writable(path_, {"trace"});
  check_file_setting(!path_exists(path_) || is_trace(path_), path_, {"trace"},
                     "exists already and is not a trace; choose another name");
}

std::string StepTrace::foretell(const TrainingConfig& config, const StepPlans& plans,
                                const Machine& machine) {
  traces_.push_back(
      {.name = "foretold",
       .spans = rehearse_step(describe_step(config), plans, machine, {.trace = true}).trace});
  return fmt::format("  {:<20} {:>12}", "exposed copies",
                     percent(exposed_copies(traces_.back().spans)));
}

void StepTrace::measure(Stream& stream, const std::function<void()>& step) {
  const auto trace = std::make_shared<Trace>();
  {
    const Traced traced(stream, trace);
    step();
    stream.synchronize();
  }
  traces_.push_back({.name = "measured", .spans = trace->spans()});
}

std::string StepTrace::write(int64_t step) const {
  write_trace(path_, traces_);
  std::string text = fmt::format("the trace of step {} is in {}:", step, path_.string());
  for (const NamedTrace& trace : traces_) {
    text += fmt::format(" {} {}, exposed copies {} of it;", trace.name,
                        format_seconds(seconds(trace.spans)), percent(exposed_copies(trace.spans)));
    const std::string exposed = exposed_exchanges(trace.spans);
    if (exposed.empty()) continue;
    text.pop_back();
    text += fmt::format(", exposed exchanges {};", exposed);
  }
  text.pop_back();
  return text;
}

}  // namespace spool
