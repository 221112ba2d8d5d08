// Public: one of the headers of docs/public-headers.md.
#pragma once

// Learning rate schedules.  Each begins with a linear warm-up to the peak rate.

#include <array>
#include <cstdint>

#include "spool/runtime/names.h"

namespace spool {

// What follows the warm-up:
//   cosine    half a cosine down to `floor` (Loshchilov and Hutter, SGDR, 2017, without restarts)
//   linear    a straight line down to `floor`
//   constant  the peak rate
//   wsd       warmup-stable-decay: the peak rate, then over the last steps down to `floor` by
//             1 - sqrt(x), the best decay found by Hägele et al., "Scaling Laws and Compute-Optimal
//             Training Beyond Fixed Training Durations", 2024.  Until its decay begins, a run
//             equals a longer one with the same warm-up.
// As elsewhere (llm.c, transformers), the first step of a decay still has the peak rate, and
// `floor` would be that of the step after the last: a decay of one step changes nothing.
enum class LrSchedule : uint8_t { cosine, linear, constant, wsd };
template <>
inline constexpr std::array enumerator_names<LrSchedule>{"cosine", "linear", "constant", "wsd"};

struct LearningRate {
  LrSchedule schedule = LrSchedule::cosine;
  double peak = 0, floor = 0;  // at the end of the warm-up, and after the last step
  int64_t warmup = 0, steps = 0;
  int64_t decay = 0;  // number of last steps in which wsd decays

  // The rate of a step, counted from 0.
  double at(int64_t step) const;
  // Whether the rates of the first steps equal those of the other schedule.
  bool begins_as(const LearningRate& other, int64_t first_steps) const;
};

}  // namespace spool
