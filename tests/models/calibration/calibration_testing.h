#pragma once

// Small work to calibrate: sums of two tensors.

#include "spool/models/calibration/work_kernels.h"

namespace spool::testing {

struct Sums {
  int64_t elements = 0;
  std::function<void()> after_run = [] {};
};
MeasurableWork measurable(const Sums&);

}  // namespace spool::testing
