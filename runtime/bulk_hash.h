#pragma once

// A hash of many bytes, such as a model's weights, at several GB/s: the words are dealt to eight
// hashes, which do not wait for one another.  The same on every machine.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "spool/runtime/hash.h"

namespace spool {

class BulkHash {
 public:
  // Adds the number of bytes, then the bytes as little-endian words, with zeros behind the last.
  void add(std::span<const std::byte> bytes) {
    static_assert(std::endian::native == std::endian::little);
    hashes_[0].add(uint64_t{bytes.size()});
    std::array<uint64_t, 8> words = {};
    for (; bytes.size() >= sizeof(words); bytes = bytes.subspan(sizeof(words))) {
      std::memcpy(words.data(), bytes.data(), sizeof(words));
      for (size_t i = 0; i < words.size(); ++i) hashes_[i].add(words[i]);
    }
    words = {};
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(words)).begin());
    for (size_t i = 0; 8 * i < bytes.size(); ++i) hashes_[i].add(words[i]);
  }

  uint64_t state() const {
    Hash all;
    for (const Hash& hash : hashes_) all.add(hash.state());
    return all.state();
  }

 private:
  std::array<Hash, 8> hashes_;
};

}  // namespace spool
