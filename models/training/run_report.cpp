#include "spool/models/training/run_report.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "spool/models/report/report_page.h"
#include "spool/models/training/plan_report.h"

namespace spool {
namespace {

using nlohmann::json;

// The member `run` of a page that tells of this plan and directory; null if it does not.
json run_in(const std::filesystem::path& page, const json& plan, const std::string& directory) {
  const json stored = report_of_page(page);
  if (!stored.is_object() || !stored.contains("run")) return {};
  const json& run = stored["run"];
  const bool same = stored.value("fingerprint", json()) == plan.value("fingerprint", json()) &&
                    run.is_object() && run.value("directory", json()) == directory;
  return same ? run : json();
}

}  // namespace

RunReport::RunReport(const RunOptions& options, const PlannedRun& run, const Machine& machine,
                     const Frontier& frontier, RunListener& listener)
    : page_(options.report),
      directory_(options.out),
      listener_(listener),
      plan_(std::make_unique<json>(plan_report(run, machine, options.model, frontier))) {}

RunReport::~RunReport() = default;

void RunReport::resume_after(int64_t step) {
  done_ = step;
  const json run = run_in(page_, *plan_, directory_);
  if (!run.is_object()) return;
  for (const StepEntry& entry : step_entries(run.value("log", json()))) {
    if (entry.step <= step) history_.add(entry);
  }
}

void RunReport::add(const StepNumbers& n) {
  done_ = n.step;
  peak_ = n.peak_bytes;
  history_.add({.step = n.step,
                .loss = n.loss,
                .ms = 1e3 * n.seconds,
                .tokens_per_s = n.tokens_per_s,
                .tokens = n.tokens});
}

void RunReport::add(const EvaluationNumbers& n) {
  history_.add({.step = n.step, .val_loss = n.loss});
}

void RunReport::add(const CorrectedTime& t) { corrected_ = t.corrected; }

void RunReport::write(int64_t steps) {
  json report = *plan_;
  report["run"] = {{"directory", directory_},
                   {"step", done_},
                   {"steps", steps},
                   {"measured_peak_bytes", peak_ > 0 ? json(peak_) : json()},
                   {"foretold_peak_bytes", report["foretold_peak_bytes"]},
                   {"foretold_step_ms", report["foretold_step_ms"]},
                   {"corrected_step_ms", corrected_ > 0 ? json(1e3 * corrected_) : json()},
                   {"log", to_json(history_.entries())}};
  try {
    write_report_page(page_, report);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    if (std::exchange(is_told_, true)) return;
    listener_.say(sentence(e.what(), "; training goes on, and the report is tried again"));
  }
}

void RunReport::write_plan() const { write_report_page(page_, *plan_); }

}  // namespace spool
