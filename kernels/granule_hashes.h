#pragma once

// A hash of the bits of each granule of many tensors at once, by which ranks notice that theirs are
// no longer the same:
//   out[g] = sum_k mix_bits(word_k + (k + 1) golden_ratio_bits)  mod 2^64        (runtime/hash.h)
//   over the words k, of 8 bytes, of granule g: 2048 elements of one tensor, or its last ones, then
//   zeros; the granules of each tensor follow those of the one before, as in SquaredNorm
// A sum of integers has no order: the hashes are the same on every device.
//
// `out` shares no memory with other arguments.

#include "spool/kernels/launch.h"
#include "spool/kernels/list.h"
#include "spool/kernels/reduce.h"

namespace spool {

struct GranuleHashes {
  static constexpr const char* name = "granule_hashes";
  View out;  // i32, two for each granule: the lower half of its hash, and the upper one
  List<View, 160> x = {};
  void check_arguments() const;
  Cost cost() const;
};

void run(const GranuleHashes&, CpuStream&);
void run(const GranuleHashes&, CudaStream&);

}  // namespace spool
