#include "spool/models/training/run_log.h"

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

// The whole lines of a log that a run which resumes at this step will not write again.
std::string lines_before(const std::string& path, int64_t step) {
  std::ifstream in(path);
  std::string kept, line;
  bool first = true;
  while (std::getline(in, line)) {
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) break;
    const bool again = object.value("step", int64_t{0}) >= step || object.value("whole", false);
    if (!first && again) break;
    kept += line + "\n";
    first = false;
  }
  return kept;
}

bool begins_a_log(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const auto head = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return head.is_object() && head.value("format", "") == "spool-run";
}

}  // namespace

RunLog::RunLog(const std::string& path, const nlohmann::json& head,
               std::optional<int64_t> resume_at)
    : path_(path) {
  std::string kept;
  std::error_code none;
  if (std::filesystem::is_regular_file(path) && std::filesystem::file_size(path, none) > 0) {
    check_file_setting(resume_at.has_value() && begins_a_log(path), path, {"log"},
                       resume_at ? "is not the log of a run; choose another name"
                                 : "exists already; choose another name");
    kept = lines_before(path, *resume_at);
    write_text_file_atomically(std::filesystem::canonical(path), kept);
  }
  file_.open(path, kept.empty() ? std::ios::trunc : std::ios::app);
  if (!file_) fail_file(path, "written", errno);
  if (kept.empty()) write(head);
}

void RunLog::write(const nlohmann::json& object) {
  if (path_.empty()) return;
  file_ << object.dump() << '\n' << std::flush;
  if (!file_) fail_file(path_, "written", errno);
}

}  // namespace spool
