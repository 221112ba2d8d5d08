#include "spool/models/report/report_page.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/models/report/page_source.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

// The beginning of every page.
constexpr std::string_view mark =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta name=\"generator\" content=\"Spool\">\n";

// JSON in ASCII without the characters that have a meaning in HTML.
std::string escaped(const nlohmann::json& report) {
  const std::string text = report.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true,
                                       nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return out;
}

constexpr std::string_view element = "<script type=\"application/json\" id=\"spool-report\">";
constexpr size_t max_bytes = 16 << 20;  // of a page to read; those of large plans have 1 MB

bool is_report_page(const std::filesystem::path& path) {
  const File file = File::open(path);
  std::string begin(std::min<uint64_t>(file.size(), mark.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  return begin == mark;
}

}  // namespace

std::string report_page(const nlohmann::json& report) {
  std::string page = page_before_report;
  page += escaped(report);
  page += page_after_report;
  return page;
}

nlohmann::json read_report_page(const std::filesystem::path& path) {
  if (!path_exists(path) || !is_report_page(path)) return {};
  const std::string page = read_text_file(path, max_bytes);
  const std::string name = path.string() + ": the report in this page is damaged";
  const size_t at = page.find(element);
  check_file(at != std::string::npos, name, "there is none");
  const size_t begin = at + element.size(), end = std::min(page.find('<', begin), page.size());
  const std::string_view text = std::string_view(page).substr(begin, end - begin);
  const JsonField report = parse_json(text, name);
  report.expect(report.value().is_object(), "is not a JSON object");
  return report.value();
}

nlohmann::json report_of_page(const std::filesystem::path& path) {
  try {
    return read_report_page(path);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    return {};
  }
}

void check_report_page_file(const std::filesystem::path& path, SettingKeys keys) {
  check_writable(path, keys);
  check_file_setting(!path_exists(path) || is_report_page(path), path, keys,
                     "exists already and is not a page of a report; choose another name");
}

void write_report_page(const std::filesystem::path& path, const nlohmann::json& report,
                       SettingKeys keys) {
  check_report_page_file(path, keys);
  write_text_file_atomically(path, report_page(report));
}

}  // namespace spool
