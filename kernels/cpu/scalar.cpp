#include "spool/kernels/cpu/scalar.h"

#if SPOOL_FAST_MATH
#error \
    "Spool's kernels rely on NaN, infinity and the order of operations; compile the library \
without -ffast-math, -Ofast, -funsafe-math-optimizations and -ffinite-math-only"
#endif

namespace spool::cpu::compiled {

float exp(float x) { return cpu::exp(x); }
float tanh(float x) { return cpu::tanh(x); }
float log(float x) { return cpu::log(x); }

}  // namespace spool::cpu::compiled
