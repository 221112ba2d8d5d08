#include "spool/models/training/step_trace.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <nlohmann/json.hpp>

#include "spool/runtime/files/file.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

// As trace_json() is written, whose keys are in order.
constexpr std::string_view beginning = R"({"displayTimeUnit":"ms","otherData":{)";

bool is_trace(const fs::path& path) {
  const File file = File::open(path);
  std::array<char, beginning.size()> bytes{};
  if (file.size() < bytes.size()) return file.size() == 0;
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return std::string_view(bytes.data(), bytes.size()) == beginning;
}

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

}  // namespace

StepTrace::StepTrace(fs::path path) : path_(std::move(path)) {
  const AtomicWrite place(path_);
  check_file_setting(!fs::exists(path_) || is_trace(path_), path_, {"trace"},
                     "exists already and is not a trace; choose another name");
  File::create(place.path()).close();
}

std::string StepTrace::foretell(const TrainingConfig& config, const TrainingPlans& plans,
                                const Machine& machine) {
  traces_.push_back({.name = "foretold", .spans = foretell_step(config, plans, machine)});
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
  write_text_file_atomically(path_, trace_json(traces_).dump());
  std::string text = fmt::format("the trace of step {} is in {}:", step, path_.string());
  for (const NamedTrace& trace : traces_) {
    text += fmt::format(" {} {}, exposed copies {} of it;", trace.name,
                        format_seconds(seconds(trace.spans)), percent(exposed_copies(trace.spans)));
  }
  text.pop_back();
  return text;
}

}  // namespace spool
