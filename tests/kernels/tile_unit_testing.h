#pragma once

// Tests on a tile unit, which is emulated on a processor without one.

#include <cstdlib>
#include <string>
#include <vector>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/launch.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cpu/tile_unit.h"

namespace spool::testing {

// Streams that are made while it lives have this unit, whatever the processor has.
class WithTileUnit {
 public:
  explicit WithTileUnit(TileUnit unit) {
    if (const char* value = std::getenv(variable)) before_ = value;
    setenv(variable, std::string(name(unit)).c_str(), 1);
  }
  ~WithTileUnit() { before_.empty() ? unsetenv(variable) : setenv(variable, before_.c_str(), 1); }
  WithTileUnit(const WithTileUnit&) = delete;
  WithTileUnit& operator=(const WithTileUnit&) = delete;

 private:
  static constexpr const char* variable = "SPOOL_TILE_UNIT";
  std::string before_;
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
