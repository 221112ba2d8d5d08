#pragma once

// The six calls of a tile unit that the kernels stand on, in plain C++: what the instructions of
// AMX do, bit for bit (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
// TDPBF16PS).  A thread has eight tiles of 16 rows of 64 bytes.

#include "spool/kernels/cpu/tile_unit/vectors.h"

namespace spool::cpu::tiles {

class PlainUnit {
 public:
  static void configure() { std::memset(tiles, 0, sizeof tiles); }
  static void release() {}

  template <int tile>
  static void zero() {
    std::memset(tiles[tile], 0, sizeof tiles[tile]);
  }
  // Rows are `stride` bytes apart.
  template <int tile>
  static void load(const void* from, int64_t stride) {
    const char* row = static_cast<const char*>(from);
    for (int i = 0; i < 16; ++i) std::memcpy(tiles[tile][i], row + i * stride, 64);
  }
  template <int tile>
  static void store(void* to, int64_t stride) {
    char* row = static_cast<char*>(to);
    for (int i = 0; i < 16; ++i) std::memcpy(row + i * stride, tiles[tile][i], 64);
  }

  // sums[m][n] += left[m][2 k] right[k][2 n] + left[m][2 k + 1] right[k][2 n + 1] over k: the even
  // terms and the odd ones are added up each in order, then both, then to the sum.  Denormal
  // numbers are 0.
  template <int sums, int left, int right>
  static void multiply() {
    Floats even[16] = {}, odd[16] = {};
    for (int k = 0; k < 16; ++k) {
      const Words pairs = tiles::load<Words>(tiles[right][k]);
      const Floats b0 = even_floats(pairs), b1 = odd_floats(pairs);
      for (int m = 0; m < 16; ++m) {
        const Words both = tiles[left][m][k] + Words{};
        even[m] = without_denormals(fused(even_floats(both), b0, even[m]));
        odd[m] = without_denormals(fused(odd_floats(both), b1, odd[m]));
      }
    }
    for (int m = 0; m < 16; ++m) {
      const Floats added = without_denormals(even[m] + odd[m]);
      const Floats before = without_denormals(tiles::load<Floats>(tiles[sums][m]));
      tiles::store(tiles[sums][m], without_denormals(before + added));
    }
  }

 private:
  SPOOL_TILES_INLINE static Floats even_floats(const Words& pairs) {
    return bits_of<Floats>(without_denormals(pairs << 16));
  }
  SPOOL_TILES_INLINE static Floats odd_floats(const Words& pairs) {
    return bits_of<Floats>(without_denormals(pairs & 0xffff0000u));
  }

  alignas(64) static inline thread_local uint32_t tiles[8][16][16] = {};
};

}  // namespace spool::cpu::tiles
