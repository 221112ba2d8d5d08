#include "spool/models/optimizers/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace spool {
namespace {

// The position of a step between two others, from 0 to 1.
double part_done(int64_t step, int64_t from, int64_t to) {
  if (step <= from) return 0;
  const auto span = static_cast<double>(std::max<int64_t>(to - from, 1));
  return std::min(1.0, static_cast<double>(step - from) / span);
}

}  // namespace

double LearningRate::at(int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double done = part_done(step, warmup, steps);
  switch (schedule) {
    case LrSchedule::constant:
      return peak;
    case LrSchedule::linear:
      return floor + (peak - floor) * (1 - done);
    case LrSchedule::wsd:
      return floor + (peak - floor) * (1 - std::sqrt(part_done(step, steps - decay, steps)));
    case LrSchedule::cosine:
      break;
  }
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

bool LearningRate::begins_as(const LearningRate& other, int64_t first_steps) const {
  for (int64_t step = 0; step < first_steps; ++step) {
    if (at(step) != other.at(step)) return false;
  }
  return true;
}

}  // namespace spool
