#include "spool/kernels/granule_hashes.h"

#include <cstring>

#include "spool/kernels/cpu/pieces.h"
#include "spool/runtime/hash.h"

namespace spool {
namespace {

constexpr auto word_bytes = static_cast<int64_t>(sizeof(uint64_t));

// Word k of a granule, of which these bytes are there.
uint64_t hash_of_word(const std::byte* x, int64_t k, size_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, x + k * word_bytes, bytes);
  return mix_bits(word + (static_cast<uint64_t>(k) + 1) * golden_ratio_bits);
}

uint64_t hash_of_granule(const std::byte* x, int64_t bytes) {
  const int64_t whole = bytes / word_bytes, rest = bytes % word_bytes;
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < whole; ++k) sum += hash_of_word(x, k, sizeof(uint64_t));
  if (rest > 0) sum += hash_of_word(x, whole, static_cast<size_t>(rest));
  return sum;
}

}  // namespace

void run(const GranuleHashes& k, CpuStream& stream) {
  cpu::Pieces<decltype(k.x)::capacity> granules(norm_granule);
  for (const View& one : k.x) granules.add(one.numel());
  granules.for_each(stream, [&](size_t tensor, int64_t begin, int64_t end, int64_t granule) {
    const View& one = k.x[tensor];
    const auto element = static_cast<int64_t>(size_of(one.dtype()));
    const uint64_t hash = hash_of_granule(one.data() + begin * element, (end - begin) * element);
    std::memcpy(k.out.as<int32_t>() + 2 * granule, &hash, sizeof hash);
  });
}

}  // namespace spool
