#pragma once

// Philox and uniform() of runtime/random.h for the device, with the same bits.

#include "spool/kernels/cuda/device.cuh"
#include "spool/runtime/random.h"

namespace spool::cuda {

__device__ __forceinline__ uint4 philox(uint2 key, uint4 c) {
  using Rounds = PhiloxRounds;
#pragma unroll
  for (int round = 0; round < Rounds::count; ++round) {
    const uint64_t a = uint64_t{Rounds::times_0} * c.x, b = uint64_t{Rounds::times_2} * c.z;
    c = make_uint4(static_cast<uint32_t>(b >> 32) ^ c.y ^ key.x, static_cast<uint32_t>(b),
                   static_cast<uint32_t>(a >> 32) ^ c.w ^ key.y, static_cast<uint32_t>(a));
    key.x += Rounds::plus_0;
    key.y += Rounds::plus_1;
  }
  return c;
}

__device__ __forceinline__ float uniform(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace spool::cuda
