#pragma once

// A row of the table of a plan.

#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <string>
#include <string_view>

namespace spool {

inline std::string row(std::string_view what, const std::string& value,
                       const std::string& note = "") {
  return fmt::format("  {:<20} {:>12}{}{}\n", what, value, note.empty() ? "" : "   ", note);
}

// Two significant digits; less than a thousandth of a percent is rounding.
inline std::string percent(double part) {
  const double percents = 100 * part;
  if (std::abs(percents) < 1e-3) return "0 %";
  return std::abs(percents) < 99.5 ? fmt::format("{:.2g} %", percents)
                                   : fmt::format("{:.0f} %", percents);
}

}  // namespace spool
