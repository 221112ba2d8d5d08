#pragma once

// Philox as in runtime/random.h, vectorised over consecutive counters.  Each word is the lower half
// of a u64, as the products need it, so no round rearranges words.

#include "spool/runtime/random.h"

namespace spool::cpu {

struct PhiloxRow {
  PhiloxKey key;
  uint32_t c1, c2, c3;  // the words that all counters share

  // words[4 j], ... of the counters {first + j, c1, c2, c3}, j in [0, count).
  void draw(uint32_t first, int64_t count, uint32_t* words) const {
    using Rounds = PhiloxRounds;
    constexpr uint64_t low = 0xFFFFFFFF;
    const PhiloxRow row = *this;
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      uint64_t a0 = first + static_cast<uint32_t>(j), a1 = row.c1, a2 = row.c2, a3 = row.c3;
      uint32_t k0 = row.key[0], k1 = row.key[1];
      for (int round = 0; round < Rounds::count; ++round) {
        const uint64_t a = Rounds::times_0 * (a0 & low), b = Rounds::times_2 * (a2 & low);
        a0 = (b >> 32) ^ a1 ^ k0;
        a1 = b;
        a2 = (a >> 32) ^ a3 ^ k1;
        a3 = a;
        k0 += Rounds::plus_0;
        k1 += Rounds::plus_1;
      }
      words[4 * j] = static_cast<uint32_t>(a0);
      words[4 * j + 1] = static_cast<uint32_t>(a1);
      words[4 * j + 2] = static_cast<uint32_t>(a2);
      words[4 * j + 3] = static_cast<uint32_t>(a3);
    }
  }
};

}  // namespace spool::cpu
