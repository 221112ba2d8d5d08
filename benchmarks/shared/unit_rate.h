#pragma once

// The rate of the processor's tile unit, or of its emulation, where operands are in registers: the
// most that a product in bf16 can reach.

#include "spool/runtime/cpu/stream.h"

namespace spool::benchmarks {

// Flops per second of all threads of the stream together; 0 if there is no unit.  Takes about a
// tenth of a second.
double unit_rate(CpuStream&);

}  // namespace spool::benchmarks
