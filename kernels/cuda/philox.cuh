#pragma once

// Philox as in runtime/random.h, on the device.

#include "spool/kernels/cuda/device.cuh"

namespace spool::cuda {

struct Words {
  uint32_t at[4];
};

__device__ __forceinline__ Words philox(uint2 key, const Words& counter) {
  Words c = counter;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c.at[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * c.at[2];
    c = {{static_cast<uint32_t>(b >> 32) ^ c.at[1] ^ key.x, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c.at[3] ^ key.y, static_cast<uint32_t>(a)}};
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return c;
}

}  // namespace spool::cuda
