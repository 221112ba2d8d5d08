#pragma once

// What the programs of this folder share: errors, a stream, random numbers in memory, and timing.
// A program includes it once.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CHECK(x)                                                                \
  do {                                                                          \
    const auto status_ = (x);                                                   \
    if (int(status_) != 0) {                                                    \
      std::printf("FAILED line %d: %s = %d (%s)\n", __LINE__, #x, int(status_), \
                  cudaGetErrorString(cudaGetLastError()));                      \
      std::exit(1);                                                             \
    }                                                                           \
  } while (0)

using Bf16 = __nv_bfloat16;

inline cudaStream_t stream;

__global__ void random_values(Bf16* to, size_t n, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
       i += size_t(gridDim.x) * blockDim.x) {
    uint32_t h = uint32_t(i) * 2654435761u ^ seed;
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
      h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
      sum += float(h >> 8) * 0x1p-24f - 0.5f;
    }
    to[i] = __float2bfloat16(0.1f * sum);
  }
}
inline void* memory(size_t bytes, uint32_t seed) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, bytes));
  random_values<<<1024, 256, 0, stream>>>(static_cast<Bf16*>(p), bytes / 2, seed);
  return p;
}

// The median milliseconds of one `work` when it is enqueued `times` times in a row.
inline double ms_of(const std::function<void()>& work, int times, int tries = 5) {
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  work();
  std::vector<float> all;
  for (int t = 0; t < tries; ++t) {
    CHECK(cudaEventRecord(a, stream));
    for (int i = 0; i < times; ++i) work();
    CHECK(cudaEventRecord(b, stream));
    CHECK(cudaEventSynchronize(b));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    all.push_back(ms / float(times));
  }
  cudaEventDestroy(a);
  cudaEventDestroy(b);
  std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
  return all[all.size() / 2];
}

// Opens the stream, and prints the device and the versions of its driver and of CUDA's runtime.
inline void open_device() {
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0));
  int driver = 0, runtime = 0;
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  std::printf(
      "%s, compute capability %d.%d, %d multiprocessors, %d MiB of L2; CUDA %d by the driver, "
      "%d by the runtime\n",
      p.name, p.major, p.minor, p.multiProcessorCount, p.l2CacheSize >> 20, driver, runtime);
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}
