#pragma once

// The functions of kernels.h for one unit: the six calls of plain_unit.h or amx_unit.h.

#include "spool/kernels/cpu/tile_unit/attention_backward.h"
#include "spool/kernels/cpu/tile_unit/attention_forward.h"
#include "spool/kernels/cpu/tile_unit/turned.h"

namespace spool::cpu::tiles {

template <class Unit>
void spin(int64_t times) {
  Unit::configure();
  for (int64_t i = 0; i < times; ++i) {
    Unit::template multiply<0, 4, 6>();
    Unit::template multiply<1, 4, 7>();
    Unit::template multiply<2, 5, 6>();
    Unit::template multiply<3, 5, 7>();
  }
  Unit::release();
}

template <class Unit>
constexpr Kernels kernels_with = {
    .multiply_strip = multiply_strip<Unit>,
    .pack_shared = pack_shared<Unit>,
    .multiply_shared = multiply_shared<Unit>,
    .pack_turned = pack_turned<Unit>,
    .multiply_turned = multiply_turned<Unit>,
    .attend = attend<Unit>,
    .begin_keys = begin_keys<Unit>,
    .differentiate = differentiate<Unit>,
    .add_queries = add_queries<Unit>,
    .end_keys = end_keys<Unit>,
    .spin = spin<Unit>,
};

}  // namespace spool::cpu::tiles
