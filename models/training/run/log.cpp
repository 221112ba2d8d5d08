#include "spool/models/training/run/log.h"

#include <spdlog/fmt/chrono.h>
#include <spdlog/fmt/fmt.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/units.h"
#include "spool/runtime/version.h"

namespace spool {
namespace {

// The lines of a log that a run keeps which resumes.  A line that a kill cut off and all after it
// are left out.
std::string kept_lines(const std::string& path, const ResumedLog& resumed) {
  std::ifstream in(path);
  std::string kept, line;
  bool first = true;
  while (std::getline(in, line)) {
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) break;
    const auto at = object.value("step", nlohmann::json(0));
    if (!at.is_number_integer() || (!first && at > resumed.steps_done)) break;
    const bool is_again =
        resumed.evaluates_first && at == resumed.steps_done && object.contains("val_loss");
    if (!is_again) kept += line + "\n";
    first = false;
  }
  return kept;
}

// A descriptor of the process, such as its standard output: what is in its file is not the log's.
bool is_descriptor(const std::string& path) {
  return path.starts_with("/dev/std") || path.starts_with("/dev/fd/") || path.starts_with("/proc/");
}

bool has_lines(const std::string& path) {
  std::error_code none;
  return !is_descriptor(path) && std::filesystem::is_regular_file(path, none) &&
         std::filesystem::file_size(path, none) > 0;
}

// The time of day, in UTC: 2026-01-31T23:59:59Z.
std::string now() { return fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr))); }

bool begins_a_log(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const auto head = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return head.is_object() && head.contains("format") && head["format"] == "spool-run";
}

// To open one waits for its reader.  Those of the process's own descriptors are open already.
bool is_named_pipe(const std::string& path) {
  std::error_code none;
  return !is_descriptor(path) && std::filesystem::is_fifo(path, none);
}

}  // namespace

void check_log_file(const std::string& path, bool resumes) {
  std::error_code none;
  check_file_setting(!is_named_pipe(path), path, {"log"},
                     "is a named pipe, for whose reader the run would wait; name a file");
  if (!std::filesystem::exists(path, none)) return check_writable(path, {"log"});
  check_file_setting(!std::filesystem::is_directory(path, none), path, {"log"},
                     "is a directory; choose another name");
  check_file_setting(!has_lines(path) || (resumes && begins_a_log(path)), path, {"log"},
                     resumes ? "is not the log of a run; choose another name"
                             : "exists already; choose another name");
}

RunLog::RunLog(const RunOptions& options, size_t foretold_peak, std::optional<ResumedLog> resumed,
               RunListener& listener)
    : foretold_peak_(foretold_peak), path_(options.log), listener_(listener) {
  check_log_file(path_, resumed.has_value());
  std::string kept;
  if (has_lines(path_)) {
    kept = kept_lines(path_, *resumed);
    write_text_file_atomically(path_, kept);
  }
  file_.open(path_, kept.empty() && !is_descriptor(path_) ? std::ios::trunc : std::ios::app);
  if (!file_) fail_file(path_, "written", errno);
  if (!kept.empty()) return;
  const int error = append({{"format", "spool-run"},
                            {"format_version", 1},
                            {"spool", sentence(version(), " ", commit())},
                            {"configuration", configuration(options)},
                            {"foretold_peak_bytes", foretold_peak}});
  if (error != 0) fail_file(path_, "written", error);
}

void RunLog::step(const StepNumbers& n) {
  write_line({{"step", n.step},
              {"loss", as_written(n.loss)},
              {"lr", n.lr},
              {"grad_norm", as_written(n.grad_norm)},
              {"tokens", n.tokens},
              {"tokens_per_s", as_written(static_cast<float>(n.tokens_per_s))},
              {"step_ms", as_written(static_cast<float>(n.seconds * 1e3))},
              {"peak_bytes", n.peak_bytes},
              {"foretold_peak_bytes", foretold_peak_}});
}

void RunLog::evaluated(const EvaluationNumbers& n) {
  write_line(
      {{"step", n.step}, {"val_loss", n.loss}, {"val_targets", n.targets}, {"whole", n.whole}});
}

void RunLog::corrected(const CorrectedTime& t) {
  write_line({{"step", t.step},
              {"foretold_step_ms", t.foretold * 1e3},
              {"corrected_step_ms", t.corrected * 1e3}});
}

void RunLog::ranks(int64_t steps_done, const std::vector<RankNumbers>& all) {
  nlohmann::json list = nlohmann::json::array();
  for (const RankNumbers& n : all) {
    list.push_back({{"rank", n.rank},
                    {"peak_bytes", n.peak},
                    {"foretold_peak_bytes", n.foretold_peak},
                    {"host_peak_bytes", n.host_peak},
                    {"foretold_host_peak_bytes", n.foretold_host_peak},
                    {"sent_bytes", n.sent},
                    {"foretold_sent_bytes", n.foretold_sent},
                    {"exchange_seconds", n.exchange_seconds},
                    {"exposed_seconds", n.exposed_seconds}});
  }
  write_line({{"step", steps_done}, {"ranks", std::move(list)}});
}

void RunLog::write_line(const nlohmann::json& object) {
  std::error_code none;
  const uintmax_t whole = std::filesystem::file_size(path_, none);
  const int error = append(object);
  if (error == 0) return;
  cut_back(whole);
  if (std::exchange(lacks_lines_, true)) return;
  listener_.warn(fmt::format(
      "{}: cannot be written: {}; training goes on, and the log lacks the lines until it can be",
      path_, std::generic_category().message(error)));
}

// Returns what errno was if the line could not be written, else 0.
int RunLog::append(nlohmann::json object) {
  object["time"] = now();
  errno = 0;
  file_ << object.dump() << '\n' << std::flush;
  return file_ ? 0 : errno != 0 ? errno : EIO;
}

// Removes what was written of a line: readers take a log up to its first broken one.
void RunLog::cut_back(uintmax_t bytes) {
  file_.close();
  file_.clear();
  std::error_code none;
  if (std::filesystem::is_regular_file(path_, none)) {
    std::filesystem::resize_file(path_, bytes, none);
  }
  file_.open(path_, std::ios::app);
}

}  // namespace spool
