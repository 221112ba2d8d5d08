#pragma once

// Measures the link between the ranks of a group, as their exchanges take it: of host memory, or of
// their devices'.

#include <array>

#include "spool/runtime/ranks/communicator.h"

namespace spool {

// What a rank gives to others, and takes from them, in the exchanges that are measured.
inline constexpr std::array<size_t, 3> measured_bytes{size_t{4} << 10, size_t{1} << 20,
                                                      size_t{16} << 20};

// The link by which exchanges of measured_bytes take these seconds: the most bytes as long as was
// measured; its latency is what the fewest took without their bytes, or less where more bytes took
// less, as on a busy machine.
Link fit_link(const std::array<double, 3>& seconds);

// All ranks of a group of at least two call it at the same place of their programs, and get the
// same.  They exchange at once, each with all others, and the slowest counts: its least time that
// stands.  It takes at most about 1 s, unless one exchange of 16 MiB takes longer.
Link measure_link(Communicator&);

}  // namespace spool
