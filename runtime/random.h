// Public: one of the headers of docs/public-headers.md.
#pragma once

// Philox 4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy
// as 1, 2, 3" (SC 2011).  The same key and counter give the same four words everywhere, so a draw
// depends only on its key and counter, not on order, chunking or threads.

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace spool {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxCounter = std::array<uint32_t, 4>;

// Number of rounds, factors of words 0 and 2 of the counter, and increments of the key.
struct PhiloxRounds {
  static constexpr int count = 10;
  static constexpr uint32_t times_0 = 0xD2511F53, times_2 = 0xCD9E8D57;
  static constexpr uint32_t plus_0 = 0x9E3779B9, plus_1 = 0xBB67AE85;
};

constexpr PhiloxCounter philox(PhiloxKey key, PhiloxCounter c) {
  using Rounds = PhiloxRounds;
  for (int round = 0; round < Rounds::count; ++round) {
    const uint64_t a = uint64_t{Rounds::times_0} * c[0];
    const uint64_t b = uint64_t{Rounds::times_2} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += Rounds::plus_0;
    key[1] += Rounds::plus_1;
  }
  return c;
}

constexpr PhiloxKey philox_key(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

// Uniform in [0, 1), a multiple of 2^-24.
constexpr float uniform(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// A sequence of draws on the host, for initial values, sampling and the order of the data; a seed
// has 2^64 independent streams.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : key_(philox_key(seed)), stream_(stream) {}

  uint32_t next() {
    if (used_ == 4) {
      words_ = philox(key_, {static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32),
                             static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)});
      ++block_;
      used_ = 0;
    }
    return words_[used_++];
  }
  double uniform() { return next() * 0x1p-32; }

  // Standard normal, by Box-Muller; takes two words.
  float normal() {
    const double radius = std::sqrt(-2 * std::log((next() + 1.0) * 0x1p-32));
    return static_cast<float>(radius * std::cos(2 * std::numbers::pi * uniform()));
  }

 private:
  PhiloxKey key_;
  uint64_t stream_;
  uint64_t block_ = 0;
  PhiloxCounter words_{};
  size_t used_ = 4;
};

}  // namespace spool
