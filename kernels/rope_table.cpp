#include "spool/kernels/rope_table.h"

#include <cmath>
#include <numbers>

#include "spool/runtime/check.h"

namespace spool {
namespace {

void check_frequencies(int64_t D, const RopeFrequencies& of) {
  check(D > 0 && D % 2 == 0, "rope: a head of ", D,
        " numbers has no pairs to turn; it must be even");
  check(of.theta > 0 && std::isfinite(of.theta), "rope: theta is ", of.theta,
        "; it must be above 0");
  if (!of.scaling) return;
  const Llama3Scaling& s = *of.scaling;
  check(s.factor > 0 && s.low > 0 && s.high > s.low && s.original_context > 0,
        "rope: a llama3 scaling by a factor of ", s.factor, ", from ", s.low, " to ", s.high,
        " of an original context of ", s.original_context,
        "; all must be above 0, and low below high");
}

// Each step in f32, in the order of transformers.
float scaled(float f, const Llama3Scaling& by) {
  const auto factor = static_cast<float>(by.factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / f;
  if (wavelength < static_cast<float>(by.original_context / by.high)) return f;
  if (wavelength > static_cast<float>(by.original_context / by.low)) return f / factor;
  const float turns = static_cast<float>(by.original_context) / wavelength;
  const float m = (turns - static_cast<float>(by.low)) / static_cast<float>(by.high - by.low);
  return (1 - m) * f / factor + m * f;
}

}  // namespace

std::vector<float> inverse_frequencies(int64_t D, const RopeFrequencies& of) {
  check_frequencies(D, of);
  std::vector<float> all;
  for (int64_t i = 0; i < D; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(D);
    const float f = 1 / std::pow(static_cast<float>(of.theta), exponent);
    all.push_back(of.scaling ? scaled(f, *of.scaling) : f);
  }
  return all;
}

template <class T>
std::vector<T> rope_table(int64_t rows, int64_t D, const RopeFrequencies& of) {
  check(rows >= 0, "rope: a table of ", rows, " positions");
  const std::vector<float> frequencies = inverse_frequencies(D, of);
  std::vector<T> table;
  table.reserve(static_cast<size_t>(rows * D));
  std::vector<T> sines;
  for (int64_t p = 0; p < rows; ++p) {
    sines.clear();
    for (const float f : frequencies) {
      const double angle = static_cast<float>(p) * f;  // rounded to f32, as everywhere
      table.push_back(static_cast<T>(std::cos(angle)));
      sines.push_back(static_cast<T>(std::sin(angle)));
    }
    table.insert(table.end(), sines.begin(), sines.end());
  }
  return table;
}

template std::vector<float> rope_table<float>(int64_t, int64_t, const RopeFrequencies&);
template std::vector<double> rope_table<double>(int64_t, int64_t, const RopeFrequencies&);

}  // namespace spool
