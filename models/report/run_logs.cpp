#include "spool/models/report/run_logs.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "spool/models/report/report_page.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

using nlohmann::json;

constexpr size_t longest_line = 1 << 20;
constexpr size_t steps_of_a_page = 6000;

// Reads the lines of a log.
class LogLines {
 public:
  explicit LogLines(const std::filesystem::path& path)
      : path_(path.string()), in_(path, std::ios::binary), buffer_(longest_line, '\0') {
    if (!in_) fail_file(path, "read", errno);
  }

  // Returns false if there is no further line.
  bool next() {
    in_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    if (in_.eof() && in_.gcount() == 0) return false;
    ++number_;
    check_file(!in_.fail() || in_.eof(), path_, "line ", number_,
               " is longer than a megabyte; this is not a log of `spool train`");
    const auto length = static_cast<size_t>(in_.gcount()) - (in_.eof() ? 0 : 1);
    line_ = std::string_view(buffer_).substr(0, length);
    return true;
  }
  int64_t number() const { return number_; }
  std::string name() const { return sentence(path_, ", line ", number_); }
  std::string_view text() const { return line_; }

 private:
  std::string path_;
  std::ifstream in_;
  std::string buffer_;
  std::string_view line_;
  int64_t number_ = 0;
};

std::optional<double> number(const JsonField& line, const char* key) {
  const auto field = line.present(key);
  return field ? std::optional(field->number()) : std::nullopt;
}

StepEntry entry_of(const JsonField& line) {
  StepEntry entry{.step = line.member("step").integer<int64_t>(0, max_steps),
                  .loss = number(line, "loss"),
                  .val_loss = number(line, "val_loss"),
                  .ms = number(line, "step_ms"),
                  .tokens_per_s = number(line, "tokens_per_s")};
  if (const auto tokens = line.find("tokens")) entry.tokens = tokens->integer<int64_t>(0);
  return entry;
}

bool is_head(const JsonField& line) {
  const json& value = line.value();
  return value.is_object() && value.value("format", json()) == "spool-run";
}

std::optional<JsonField> whole_line(const LogLines& lines) {
  try {
    return parse_json(lines.text(), lines.name());
  } catch (const Error&) {
    return {};
  }
}

LoggedRun read_page(const std::filesystem::path& path, const json& report, size_t max) {
  const auto run = report.find("run");
  check_file(run != report.end() && run->is_object(), path,
             "is the page of a plan, a plot or a sweep, not of a run; give one that `spool train` "
             "wrote, or a log");
  StepHistory history(max);
  int64_t last = -1;
  for (const StepEntry& entry : step_entries(run->value("log", json()))) {
    check_file(entry.step > last, path, "step ", entry.step, " comes after step ", last);
    last = entry.step;
    history.add(entry);
  }
  return {.steps = history.entries()};
}

}  // namespace

LoggedRun read_run_log(const std::filesystem::path& path, size_t max) {
  check_file(!std::filesystem::is_directory(path), path,
             "is a directory; give the file that the run logs to");
  // Does not open a pipe, which could block, or lose what is read from it.
  check_file(!path_exists(path) || std::filesystem::is_regular_file(path), path,
             "is not a regular file; give the file that the run logs to");
  if (const json report = read_report_page(path); report.is_object()) {
    return read_page(path, report, max);
  }
  LogLines lines(path);
  const bool any = lines.next();
  const auto head = any ? whole_line(lines) : std::nullopt;
  check_file(head && is_head(*head), path,
             "is not a log of `spool train`, whose first line is JSON with its format");
  StepHistory history(max);
  int64_t last = -1;
  while (lines.next()) {
    const auto line = whole_line(lines);
    if (!line) {
      return {history.entries(),
              sentence(lines.name(), " is broken off; of this run the page has what is before it")};
    }
    const StepEntry entry = entry_of(*line);
    check_file(entry.step >= last, path, "line ", lines.number(), ": step ", entry.step,
               " comes after step ", last, "; the steps of a log rise");
    const bool tells = entry.loss || entry.val_loss || entry.ms;
    if (!tells) continue;
    last = entry.step;
    history.add(entry);
  }
  return {.steps = history.entries()};
}

std::vector<std::string> short_names(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::vector<std::string>> parts;
  for (const auto& path : paths) {
    const auto absolute = std::filesystem::absolute(path).lexically_normal();
    auto& of_path = parts.emplace_back();
    for (const auto& part : absolute) of_path.push_back(part.string());
  }
  const auto all_have = [&](auto end) {
    return std::ranges::all_of(parts,
                               [&](auto& p) { return p.size() > 1 && end(p) == end(parts[0]); });
  };
  while (parts.size() > 1 && all_have([](auto& p) { return p.front(); })) {
    for (auto& p : parts) p.erase(p.begin());
  }
  while (parts.size() > 1 && all_have([](auto& p) { return p.back(); })) {
    for (auto& p : parts) p.pop_back();
  }
  std::vector<std::string> names;
  for (const auto& p : parts) {
    std::filesystem::path name;
    for (const auto& part : parts.size() > 1 ? p : std::vector{p.back()}) name /= part;
    names.push_back(name.string());
  }
  return names;
}

size_t plotted_steps(size_t runs) {
  return std::clamp<size_t>(steps_of_a_page / std::max<size_t>(runs, 1), 4, 2000);
}

json plot_report(const std::vector<std::string>& names, const std::vector<LoggedRun>& runs) {
  json all = json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    all.push_back({{"name", names[i]}, {"log", to_json(runs[i].steps)}});
  }
  return {{"format", "spool-plot"}, {"format_version", 1}, {"runs", std::move(all)}};
}

}  // namespace spool
