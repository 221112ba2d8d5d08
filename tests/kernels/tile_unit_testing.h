#pragma once

// Tests on a tile unit, which is emulated on a processor without one.

#include <limits>
#include <string>
#include <vector>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/launch.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cpu/tile_unit.h"
#include "tests/runtime/environment.h"

namespace spool::testing {

// Streams that are made while it lives have this unit, whatever the processor has.
struct WithTileUnit : EnvironmentVariable {
  explicit WithTileUnit(TileUnit unit)
      : EnvironmentVariable("SPOOL_TILE_UNIT", std::string(name(unit))) {}
};

// The plain twin of the unit, and the unit if there is one.
inline std::vector<TileUnit> tile_units() {
  std::vector<TileUnit> units{TileUnit::emulated};
  if (tile_unit() == TileUnit::present) units.push_back(TileUnit::present);
  return units;
}

// Frees memory full of NaN, which becomes the next workspace.
inline void leave_nan_in(Stream& stream, int64_t bytes) {
  const Tensor nan({Shape{bytes / 4}}, stream);
  launch(Fill{.out = nan, .value = std::numeric_limits<float>::quiet_NaN()}, stream);
}

}  // namespace spool::testing
