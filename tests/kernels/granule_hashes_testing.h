#pragma once

// Hashes of granules, and the same by plain loops over bytes.

#include <cstring>
#include <vector>

#include "spool/kernels/granule_hashes.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/integer.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

using Hashes = std::vector<uint64_t>;

// Ends within and at the ends of words, packs and granules.
inline const std::vector<int64_t> hashed_counts{1, 2, 7, 0, 13, 2047, 2048, 2049, 6151};

inline Hashes hashes(const std::vector<Tensor>& all, Stream& stream) {
  GranuleHashes k;
  int64_t granules = 0;
  for (const Tensor& x : all) {
    k.x.add(x);
    granules += ceil_div(x.numel(), norm_granule);
  }
  const Tensor out({{2 * granules}, DType::i32}, stream);
  k.out = out;
  launch(k, stream);
  const std::vector<int32_t> halves = read<int32_t>(out);
  Hashes found;
  for (size_t i = 0; i < halves.size(); i += 2) {
    const uint64_t lower = static_cast<uint32_t>(halves[i]);
    found.push_back(uint64_t{static_cast<uint32_t>(halves[i + 1])} << 32 | lower);
  }
  return found;
}

inline Hashes plain_hashes(const std::vector<Tensor>& all) {
  Hashes found;
  for (const Tensor& x : all) {
    std::vector<std::byte> bytes(x.nbytes());
    read_bytes(x, 0, bytes);
    const size_t granule = static_cast<size_t>(norm_granule) * size_of(x.dtype());
    for (size_t i = 0; i < bytes.size(); i += 8) {
      if (i % granule == 0) found.push_back(0);
      uint64_t word = 0;
      for (size_t b = 0; b < 8 && i + b < bytes.size(); ++b) {
        word |= std::to_integer<uint64_t>(bytes[i + b]) << 8 * b;
      }
      found.back() += mix_bits(word + (i % granule / 8 + 1) * golden_ratio_bits);
    }
  }
  return found;
}

// Tensors of every extent, which begin `skip` elements into their memory, and small ones until
// their list is full.
inline std::vector<Tensor> hashed_tensors(const std::vector<DType>& types, int64_t skip,
                                          Stream& stream) {
  std::vector<Tensor> all;
  while (std::ssize(all) < decltype(GranuleHashes::x)::capacity) {
    const size_t i = all.size();
    const int64_t n = i / types.size() < hashed_counts.size() ? hashed_counts[i / types.size()]
                                                              : static_cast<int64_t>(i);
    const Tensor x = normal({skip + n, 1}, types[i % types.size()], stream, i + 1);
    all.push_back(x.slice({skip, skip + n}));
  }
  return all;
}

}  // namespace spool::testing
