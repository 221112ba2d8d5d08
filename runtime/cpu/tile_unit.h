#pragma once

// The tile unit of this processor (AMX), on which Spool's own kernels compute products and
// attention in bf16.

#include <array>
#include <cstdint>

#include "spool/runtime/names.h"

namespace spool {

// emulated: the same kernels, with the unit's instructions in plain C++, as tests run them on any
// processor.
enum class TileUnit : uint8_t { absent, emulated, present };
template <>
inline constexpr std::array enumerator_names<TileUnit>{"absent", "emulated", "present"};

// Present if this build has kernels for the unit, the processor has AMX for bf16 and AVX-512, which
// the kernels use beside it, and the system permits tile data, for which the first call asks; else
// absent.
//
// SPOOL_TILE_UNIT=absent, emulated or present in the environment, read at each call, replaces the
// answer, for tests.  It says present where a program emulates the instructions; anywhere else that
// lacks them the first product ends the process.  Throws if it is another word, or if it says
// present and this build has no kernels for the unit.
TileUnit tile_unit();

}  // namespace spool
