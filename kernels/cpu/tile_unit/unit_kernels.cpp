// The tile unit itself.  This source alone is compiled for processors that have one
// (cmake/processor.cmake).

#if SPOOL_TILES

#include "spool/kernels/cpu/tile_unit/amx_unit.h"
#include "spool/kernels/cpu/tile_unit/kernels_of_unit.h"

namespace spool::cpu::tiles {

const Kernels& unit_kernels() { return kernels_with<AmxUnit>; }

}  // namespace spool::cpu::tiles

#endif
