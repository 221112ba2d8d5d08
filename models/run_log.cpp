#include "spool/models/run_log.h"

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "spool/models/file.h"

namespace spool {
namespace {

// The whole lines of a log that belong to steps before this one; none if it is no log.
std::string lines_before(const std::string& path, int64_t step) {
  std::ifstream in(path);
  std::string kept, line;
  bool first = true;
  while (std::getline(in, line)) {
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || (first && !object.contains("format_version"))) break;
    if (!first && object.value("step", int64_t{0}) >= step) break;
    kept += line + "\n";
    first = false;
  }
  return kept;
}

}  // namespace

RunLog::RunLog(const std::string& path, const nlohmann::json& head,
               std::optional<int64_t> resume_at)
    : path_(path) {
  std::string kept;
  if (resume_at && std::filesystem::is_regular_file(path)) {
    kept = lines_before(path, *resume_at);
    if (!kept.empty()) write_text_file_atomically(path, kept);
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
