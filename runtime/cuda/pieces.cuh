#pragma once

// Copies of many messages at once, between where they lie and pieces (ranks/packing.h), and what
// the device has come to, which the host reads without waiting for it.

#include <cuda_runtime.h>

#include <vector>

#include "spool/runtime/cuda/handles.cuh"
#include "spool/runtime/cuda/stream.h"

namespace spool::cuda {

struct PieceCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;
};

void enqueue_copies(const char* name, const std::vector<PieceCopy>&, CudaStream&);

// How many exchanges have begun and ended on a stream, the name of the last that began, how long
// they took, and the bytes that they gave to other ranks: written by the device, replayed graphs
// included.
class ExchangeProgress {
 public:
  struct Reading {
    unsigned begun = 0, ended = 0;
    const char* name = "";
    unsigned long long began_at = 0, nanoseconds = 0, sent = 0;
  };

  ExchangeProgress();

  void begin(const char* name, cudaStream_t stream) const { note(name, 0, stream); }
  void end(size_t sent, cudaStream_t stream) const { note(nullptr, sent, stream); }
  Reading read() const;

 private:
  void note(const char* name, unsigned long long sent, cudaStream_t) const;

  PinnedMemory memory_;
};

}  // namespace spool::cuda
