#pragma once

// The six calls of a tile unit as the instructions of AMX.  They are inline assembly: compilers'
// functions take no tile from a template, and g++ 12 does not know what memory they read.

#include <cstdint>

namespace spool::cpu::tiles {

class AmxUnit {
 public:
  static void configure() {
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } tiles;
    static_assert(sizeof tiles == 64);
    asm volatile("ldtilecfg %0" : : "m"(tiles));
  }
  static void release() { asm volatile("tilerelease"); }

  template <int tile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  // Rows are `stride` bytes apart.
  template <int tile>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
  }
  template <int sums, int left, int right>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(left), "i"(right));
  }
};

}  // namespace spool::cpu::tiles
