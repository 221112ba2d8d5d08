#include "spool/models/training/run/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "spool/models/report/report_page.h"
#include "spool/models/training/plan_report.h"
#include "spool/models/training/run_options.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using nlohmann::json;

// What tells one run from another, and what tells one plan of a run from another.
constexpr std::array members_of_run{"model", "batch", "seq", "accumulate", "dtype", "parameters"};
constexpr std::array members_of_plan{
    "machine", "foretold_peak_bytes",  "foretold_step_ms", "loss_chunk", "region_chunks",
    "layers",  "state_bytes_on_device"};

bool are_equal(const json& a, const json& b, std::span<const char* const> members) {
  return std::ranges::all_of(
      members, [&](const char* key) { return a.value(key, json()) == b.value(key, json()); });
}

// The report of a page that tells of this run; null if it does not.
json report_of_run(const std::filesystem::path& page, const json& plan,
                   const std::string& directory) {
  json stored = report_of_page(page);
  if (!stored.is_object() || !are_equal(stored, plan, members_of_run)) return {};
  const json run = stored.value("run", json());
  const bool same = run.is_object() && run.value("directory", json()) == directory;
  return same ? stored : json();
}

template <class T>
T number_or_zero(const json& run, const char* key) {
  const json number = run.value(key, json());
  return number.is_number() ? std::max(number.get<T>(), T{0}) : T{0};
}

template <class T>
json unless_zero(T number) {
  return number > 0 ? json(number) : json();
}

std::string absolute_directory(const std::string& directory) {
  std::error_code ignored;
  const auto whole = std::filesystem::absolute(directory, ignored);  // also of one not there yet
  const auto path = std::filesystem::weakly_canonical(whole, ignored);
  return ignored ? directory : (path / "").parent_path().string();
}

}  // namespace

RunReport::RunReport(const RunOptions& options, const PlannedRun& run, const Machine& machine,
                     const Frontier& frontier, RunListener& listener)
    : page_(options.report),
      directory_(absolute_directory(options.out)),
      listener_(listener),
      plan_(std::make_unique<json>(plan_report(run, machine, options.model, frontier))),
      steps_(options.training.steps) {}

RunReport::~RunReport() = default;

void RunReport::resume_after(int64_t step) {
  resumes_ = true;
  done_ = plan_since_ = step;
  const json stored = report_of_run(page_, *plan_, directory_);
  if (!stored.is_object()) return;
  const json& run = stored["run"];
  for (const StepEntry& entry : step_entries(run.value("log", json()))) {
    if (entry.step <= step) history_.add(entry);
  }
  if (!are_equal(stored, *plan_, members_of_plan)) return;
  plan_since_ = std::min(number_or_zero<int64_t>(run, "plan_since_step"), step);
  peak_ = number_or_zero<size_t>(run, "measured_peak_bytes");
  corrected_ms_ = number_or_zero<double>(run, "corrected_step_ms");
}

void RunReport::step(const StepNumbers& n) {
  done_ = n.step;
  peak_ = std::max(peak_, n.peak_bytes);
  history_.add({.step = n.step,
                .loss = as_written(n.loss),
                .ms = as_written(static_cast<float>(1e3 * n.seconds)),
                .tokens_per_s = as_written(static_cast<float>(n.tokens_per_s)),
                .tokens = n.tokens});
}

void RunReport::evaluated(const EvaluationNumbers& n) {
  history_.add({.step = n.step, .val_loss = n.loss});
}

void RunReport::corrected(const CorrectedTime& t) { corrected_ms_ = 1e3 * t.corrected; }

void RunReport::flush(size_t peak) {
  peak_ = std::max(peak_, peak);
  write();
}

std::optional<double> RunReport::measured_ms() const {
  std::vector<double> times;
  for (const StepEntry& entry : history_.entries()) {
    if (entry.step > plan_since_ && entry.ms) times.push_back(*entry.ms);
  }
  if (times.empty()) return {};
  std::ranges::sort(times);
  const size_t half = times.size() / 2;
  return times.size() % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
}

json RunReport::with_run() const {
  json report = *plan_;
  const auto measured = measured_ms();
  report["run"] = {{"directory", directory_},
                   {"step", done_},
                   {"steps", steps_},
                   {"plan_since_step", plan_since_},
                   {"measured_peak_bytes", unless_zero(peak_)},
                   {"foretold_peak_bytes", report.value("foretold_peak_bytes", json())},
                   {"measured_step_ms", measured ? json(*measured) : json()},
                   {"foretold_step_ms", report.value("foretold_step_ms", json())},
                   {"corrected_step_ms", unless_zero(corrected_ms_)},
                   {"log", to_json(history_.entries())}};
  return report;
}

bool RunReport::write() {
  try {
    write_report_page(page_, with_run());
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    if (std::exchange(is_told_, true)) return false;
    listener_.warn(sentence(e.what(), "; training goes on, and the report is tried again"));
    return false;
  }
}

void RunReport::write_plan() const { write_report_page(page_, resumes_ ? with_run() : *plan_); }

}  // namespace spool
