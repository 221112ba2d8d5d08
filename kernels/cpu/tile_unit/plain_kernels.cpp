// The tile unit emulated, for tests on any processor.

#include "spool/kernels/cpu/tile_unit/kernels_of_unit.h"
#include "spool/kernels/cpu/tile_unit/plain_unit.h"
#include "spool/runtime/check.h"

namespace spool::cpu::tiles {

#if !SPOOL_TILES
const Kernels& unit_kernels() {
  throw Error(ErrorKind::device, "this build has no kernels for tiles");
}
#endif

const Kernels& kernels_of(TileUnit unit) {
  return unit == TileUnit::present ? unit_kernels() : kernels_with<PlainUnit>;
}

}  // namespace spool::cpu::tiles
