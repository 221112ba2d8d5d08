#include "spool/models/training/settings/setting_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "spool/runtime/files/file.h"

namespace spool {
namespace {

bool is_standard_output(std::string_view name) {
  constexpr std::array<std::string_view, 4> names{"-", "/dev/stdout", "/dev/fd/1",
                                                  "/proc/self/fd/1"};
  return std::ranges::find(names, name) != names.end();
}

std::string fault_of_amount(const std::string& text) {
  try {
    parse_bytes(text);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string list;
  for (const std::string& word : words) list.append(list.empty() ? "" : separator).append(word);
  return list;
}

std::string absolute_path(const std::string& name) {
  if (name.empty()) return name;
  const auto whole = std::filesystem::absolute(name).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

TextCheck at_least(int64_t min, int64_t max) {
  return {[=](const std::string& text) {
    const int64_t number = std::strtoll(text.c_str(), nullptr, 10);
    if (number < min) return sentence(text, " is too little; give ", min, " or more");
    if (number > max) return sentence(text, " is too much; give at most ", max);
    return std::string();
  }};
}

TextCheck number_above_zero(const std::string& what) {
  return {[=](const std::string& text) {
    const double number = std::strtod(text.c_str(), nullptr);
    const bool is_right = std::isfinite(number) && number > 0;
    return is_right ? std::string() : sentence(what, " must be a number above 0, not ", text);
  }};
}

TextCheck known_chat_format() {
  const auto fault = [](const std::string& text) -> std::string {
    try {
      named_chat_format(text);
      return {};
    } catch (const Error& e) {
      return e.what();
    }
  };
  const auto taken = [](const std::string& text) {
    return parse_chat_format(text) ? text : absolute_path(text);
  };
  return {.fault = fault, .taken = taken};
}

// Far more threads than cores would make a run slower.
TextCheck threads_of_this_machine() {
  const int64_t max = 16 * std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  return {[=](const std::string& text) {
    const long long threads = std::strtoll(text.c_str(), nullptr, 10);
    if (0 <= threads && threads <= max) return std::string();
    return sentence(text, " is no number of threads for this machine; give 1 to ", max,
                    ", which is 16 for each core, or 0: one for each core that this process may "
                    "use");
  }};
}

TextCheck memory_amount() { return {fault_of_amount, "BYTES"}; }

TextCheck memory_amount_or_none() {
  return {[](const std::string& text) { return text == "0" ? "" : fault_of_amount(text); },
          "BYTES"};
}

TextCheck one_of(const std::vector<std::string>& words) {
  const auto fault = [=](const std::string& text) {
    const bool is_known = std::ranges::find(words, text) != words.end();
    return is_known ? "" : sentence("'", text, "' is none of ", joined(words, ", "));
  };
  return {fault, sentence("{", joined(words, ","), "}")};
}

TextCheck standard_output_as(const char* name) {
  return {[=](std::string& text) {
    if (is_standard_output(text)) text = name;
    return std::string();
  }};
}

TextCheck file_of(const char* what) {
  return {[=](const std::string& text) {
    if (!is_standard_output(text)) return std::string();
    return sentence("'", text, "' is standard output, where ", what, " cannot go; give a name");
  }};
}

TextCheck path() { return {.taken = absolute_path}; }

TextCheck preset_or_path() {
  return {.taken = [](const std::string& model) {
    return has_weights(model) && path_exists(model) ? absolute_path(model) : model;
  }};
}

std::function<std::string(const int64_t&)> positive(const std::string& what) {
  return [=](int64_t n) {
    if (n > 0 && n <= largest_count) return std::string();
    return sentence(what, " is ", n, ", and must be between 1 and ", largest_count);
  };
}

std::function<std::string(const int64_t&)> not_negative(const std::string& what) {
  return must<int64_t>(what + " must be 0 or more", [](int64_t n) { return n >= 0; });
}

std::function<std::string(const int64_t&)> rows_of_chunk(const std::string& of) {
  const auto is_right = [](int64_t rows) { return rows >= 0 && rows <= largest_count; };
  return must<int64_t>(
      sentence("the rows of a chunk of ", of, " must be between 0 (all rows) and ", largest_count),
      is_right);
}

std::function<std::string(const double&)> finite_from_zero(const std::string& must_be) {
  return must<double>(must_be, [](double x) { return std::isfinite(x) && x >= 0; });
}

std::function<std::string(const double&)> below_one(const std::string& what) {
  return must<double>(what + " must be in [0, 1)", [](double x) { return x >= 0 && x < 1; });
}

}  // namespace spool
