#include "spool/runtime/units.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {
namespace {

std::string print(const char* format, double value, const char* unit) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value, unit);
  return text.data();
}

bool are_equal_in_any_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

double factor_of(std::string_view unit, std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 14> units{{{"", 1},
                                                                       {"B", 1},
                                                                       {"kB", 1e3},
                                                                       {"MB", 1e6},
                                                                       {"GB", 1e9},
                                                                       {"TB", 1e12},
                                                                       {"KiB", 0x1p10},
                                                                       {"MiB", 0x1p20},
                                                                       {"GiB", 0x1p30},
                                                                       {"TiB", 0x1p40},
                                                                       {"K", 0x1p10},
                                                                       {"M", 0x1p20},
                                                                       {"G", 0x1p30},
                                                                       {"T", 0x1p40}}};
  for (const auto& [name, factor] : units) {
    if (are_equal_in_any_case(unit, name)) return factor;
  }
  fail(ErrorKind::invalid, "'", text, "' is not an amount of memory: '", unit,
       "' is not a unit; write for example 512MiB, 2GiB or 2GB");
}

}  // namespace

std::string format_bytes(size_t bytes) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < units.size()) value /= 1024, ++unit;
  if (unit == 0) return print("%.0f %s", value, units[unit]);
  return print(value < 9.995   ? "%.2f %s"
               : value < 99.95 ? "%.1f %s"
                               : "%.0f %s",
               value, units[unit]);
}

size_t parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && value > 0 && std::isfinite(value), "'", text,
        "' is not an amount of memory; write for example 512MiB, 2GiB or 2GB");
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const double bytes = value * factor_of(unit, text);
  check(bytes >= 1 && bytes < 0x1p62, "'", text, "' is not a possible amount of memory");
  return static_cast<size_t>(bytes);
}

std::string format_number(double number) { return fmt::format("{}", number); }

double as_written(float number) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  double same = number;
  std::from_chars(text.data(), end, same);  // infinity, too
  return same;
}

double rounded_to_decimals(double number) {
  std::array<char, 32> text{};
  constexpr int digits = std::numeric_limits<double>::digits10;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number,
                                          std::chars_format::scientific, digits - 1);
  double rounded = number;
  std::from_chars(text.data(), end, rounded);
  return rounded;
}

std::string format_seconds(double s) {
  if (s < 1e-3) return print("%.0f %s", s * 1e6, "us");
  if (s < 1) return print("%.1f %s", s * 1e3, "ms");
  if (s < 100) return print(s < 10 ? "%.2f %s" : "%.1f %s", s, "s");
  const auto minutes = static_cast<int64_t>(s / 60);
  if (minutes < 60) return sentence(minutes, " min ", static_cast<int>(s) % 60, " s");
  return sentence(minutes / 60, " h ", minutes % 60, " min");
}

}  // namespace spool
