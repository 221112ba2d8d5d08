#pragma once

// Hashes that are the same on every machine, so that files can store them.  They are not
// cryptographic: collisions are easy to construct.

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace spool {

// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// 2014): every bit of the result depends on every bit of x.
constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
inline constexpr uint64_t golden_ratio_bits = 0x9E3779B97F4A7C15u;

// Hash of a sequence of words and texts, by steps of splitmix64.
class Hash {
 public:
  explicit constexpr Hash(uint64_t seed = 0) : state_(seed) {}

  constexpr uint64_t state() const { return state_; }

  constexpr void add(uint64_t word) { state_ = mix_bits((state_ ^ word) + golden_ratio_bits); }
  constexpr void add(int64_t n) { add(static_cast<uint64_t>(n)); }
  // Adds the length, then the bytes, eight to a word, the first in the highest bits.
  constexpr void add(std::string_view text) {
    add(uint64_t{text.size()});
    for (; !text.empty(); text.remove_prefix(std::min<size_t>(text.size(), 8))) {
      uint64_t word = 0;
      for (const char c : text.substr(0, 8)) word = word << 8 | static_cast<unsigned char>(c);
      add(word);
    }
  }

 private:
  uint64_t state_;
};

// FNV-1a (Fowler, Noll, Vo) over 64-bit words; checkpoints store the hash of their data.
class Fnv1a {
 public:
  constexpr uint64_t state() const { return state_; }
  constexpr void add(uint64_t word) { state_ = (state_ ^ word) * 1099511628211u; }

 private:
  uint64_t state_ = 14695981039346656037u;
};

}  // namespace spool
