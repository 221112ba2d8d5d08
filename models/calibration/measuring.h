#pragma once

// Measures a part of what a calibration finds.  Ranks share the cores and the memory of their
// machine, so all of them measure at once, and of each number the slowest rank's counts.  The first
// one says what is next.

#include "spool/models/calibration/calibration.h"

namespace spool {

enum class Measured : uint8_t { nothing, rates, disk, link, kernels };
template <>
inline constexpr std::array enumerator_names<Measured>{"nothing", "rates", "disk", "link",
                                                       "kernels"};

struct Measuring {
  Measured what = Measured::nothing;
  size_t sample = 0;         // of the request, whose kernels are measured
  bool is_laid_out = false;  // its memory, by its own layout
};

// The longest that measuring kernels may take.
double max_seconds(const CalibrationRequest&);

// On the first rank, or without ranks: the table has what was measured, and nothing else.  The
// machine's rates lay out the sample.  Throws what a rank could not do.
DeviceTable measure_on_ranks(const Measuring&, const CalibrationRequest&, const MatmulAlgorithms&,
                             const Machine&);
// On the first rank: nothing else is measured; the others get this table.
void end_measuring(const CalibrationRequest&, const DeviceTable&);
// On another rank: measures what the first one says, until that one ends it, and returns its table.
DeviceTable measure_as_told(const CalibrationRequest&, const MatmulAlgorithms&, const Machine&);

}  // namespace spool
