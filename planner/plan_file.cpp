#include "spool/planner/plan_file.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "spool/planner/plan_json.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr uint64_t max_plan_bytes = 32'000'000;
constexpr size_t max_line = 100;

std::string text_of(const json& j) {
  return j.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

void write_value(std::ostream&, const json&, size_t indent, size_t used);

// `begin` starts the member's line: a line break and the indentation.
void write_member(std::ostream& out, const std::string& key, const json& value,
                  const std::string& begin) {
  const std::string name = sentence(text_of(key), ": ");
  out << begin << name;
  write_value(out, value, begin.size() - 1, begin.size() - 1 + name.size());
}

// Writes the value on one line if there is room, else an object with one member per line, or a list
// with as many items per line as fit.  `used` characters of the line are taken.
void write_value(std::ostream& out, const json& j, size_t indent, size_t used) {
  const std::string line = text_of(j);
  if (used + line.size() < max_line || !j.is_structured()) {
    out << line;
    return;
  }
  const std::string begin = sentence('\n', std::string(indent + 2, ' '));
  used = max_line;
  const char* comma = "";
  out << (j.is_object() ? '{' : '[');
  for (const auto& [key, item] : j.items()) {
    out << comma;
    comma = ",";
    if (j.is_object()) {
      write_member(out, key, item, begin);
      continue;
    }
    const std::string text = text_of(item);
    used += 2 + text.size();
    if (used < max_line) {
      out << ' ' << text;
      continue;
    }
    out << begin;
    write_value(out, item, indent + 2, indent + 2);
    used = indent + 2 + text.size();
  }
  out << begin.substr(0, begin.size() - 2) << (j.is_object() ? '}' : ']');
}

std::string format_plan(const StoredPlan& plan) {
  std::ostringstream out;
  json rest = to_json(plan);
  out << "{\n  \"spool_plan\": " << rest["spool_plan"];
  rest.erase("spool_plan");
  for (const auto& [key, value] : rest.items()) {
    out << ',';
    write_member(out, key, value, "\n  ");
  }
  out << "\n}\n";
  return out.str();
}

}  // namespace

void save_plan(const std::string& path, const StoredPlan& plan) {
  const std::string text = format_plan(plan);
  check_file(text.size() <= max_plan_bytes && plan_from_json(parse_json(text, path)) == plan, path,
             "the plan could not be read again: it is too large, or its machine has a name that is "
             "not UTF-8");
  write_text_file_atomically(path, text);
}

StoredPlan load_plan(const std::string& path) {
  return plan_from_json(parse_json(read_text_file(path, max_plan_bytes), path));
}

}  // namespace spool
