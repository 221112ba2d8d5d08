#include "spool/kernels/granule_hashes.h"

#include "spool/kernels/cuda/table.cuh"
#include "spool/runtime/hash.h"

namespace spool {
namespace cuda {
namespace {

constexpr int hash_block = 256, hash_warps = hash_block / warp_lanes;
constexpr int hash_packs = 4;  // packs of 16 bytes that a thread loads before it uses the first

struct HashEntry {
  const unsigned char* x = nullptr;
  int64_t bytes = 0;
  unsigned first = 0, granule_bytes = 0;
};
using HashTable = Table<HashEntry, decltype(GranuleHashes::x)::capacity>;
static_assert(sizeof(HashTable) + sizeof(int64_t) + sizeof(int32_t*) <= max_parameter_bytes);

// What word k of a granule adds to its hash, with mix_bits() of runtime/hash.h.
__device__ __forceinline__ uint64_t hash_of_word(uint64_t word, int k) {
  uint64_t x = word + (static_cast<uint64_t>(k) + 1) * golden_ratio_bits;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
__device__ __forceinline__ uint64_t word_of(unsigned lower, unsigned upper) {
  return uint64_t{upper} << 32 | lower;
}
// Word k of n bytes, byte by byte: the last one, or one that is not aligned.
__device__ __forceinline__ uint64_t cut_word(const unsigned char* x, int k, int n) {
  uint64_t word = 0;
  for (int i = 0; i < 8 && 8 * k + i < n; ++i) word |= uint64_t{x[8 * k + i]} << (8 * i);
  return word;
}

// This lane's share of the hash of n bytes.
__device__ __forceinline__ uint64_t hash_share(const unsigned char* x, int n) {
  const bool aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  const int packs = aligned ? n / 16 : 0, lane = lane_of_warp();
  uint64_t sum = 0;
  for (int first = lane; first < packs; first += hash_packs * warp_lanes) {
    uint4 bits[hash_packs];
#pragma unroll
    for (int j = 0; j < hash_packs; ++j) {
      const int i = first + j * warp_lanes;
      bits[j] = load_bits(x + 16 * i, i < packs);
    }
#pragma unroll
    for (int j = 0; j < hash_packs; ++j) {
      const int i = first + j * warp_lanes;
      if (i >= packs) break;
      sum += hash_of_word(word_of(bits[j].x, bits[j].y), 2 * i);
      sum += hash_of_word(word_of(bits[j].z, bits[j].w), 2 * i + 1);
    }
  }
  for (int k = 2 * packs + lane; 8 * k < n; k += warp_lanes) {
    sum += hash_of_word(cut_word(x, k, n), k);
  }
  return sum;
}

// Each warp hashes a granule.
__global__ void __launch_bounds__(hash_block)
    hash_granules_kernel(const __grid_constant__ HashTable table, unsigned granules, int32_t* out) {
  const unsigned granule = blockIdx.x * hash_warps + threadIdx.x / warp_lanes;
  if (granule >= granules) return;
  const HashEntry& entry = table.of_block(granule);
  const int64_t begin = int64_t{granule - entry.first} * entry.granule_bytes;
  const int64_t rest = entry.bytes - begin;
  const int n = static_cast<int>(rest < entry.granule_bytes ? rest : entry.granule_bytes);
  const uint64_t hash = warp_sum(hash_share(entry.x + begin, n));
  if (lane_of_warp() != 0) return;
  out[2 * granule] = static_cast<int32_t>(hash);
  out[2 * granule + 1] = static_cast<int32_t>(hash >> 32);
}

}  // namespace
}  // namespace cuda

void run(const GranuleHashes& k, CudaStream& stream) {
  cuda::HashTable table;
  unsigned granules = 0;
  for (const View& one : k.x) {
    table.add({.x = one.as<unsigned char>(),
               .bytes = static_cast<int64_t>(one.nbytes()),
               .first = granules,
               .granule_bytes = static_cast<unsigned>(norm_granule * size_of(one.dtype()))});
    granules += static_cast<unsigned>(ceil_div(one.numel(), norm_granule));
  }
  if (granules == 0) return;
  const unsigned blocks = ceil_div<unsigned>(granules, cuda::hash_warps);
  cuda::launch_kernel(stream, cuda::hash_granules_kernel,
                      {.grid = dim3(blocks), .block = dim3(cuda::hash_block)}, table, granules,
                      k.out.as<int32_t>());
}

}  // namespace spool
