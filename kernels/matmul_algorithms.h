#pragma once

// Chooses the algorithm by which cuBLASLt computes a product on a GPU.
//
// For a form of product (shapes, types, alignment, bias), cuBLASLt's heuristics name several
// algorithms.  Spool takes the first, or the one that a table names, which was made by timing them
// on such a device with such a library.  Nothing is timed in a run, so runs have the same bits.

#include <cstdint>
#include <map>
#include <string>

#include "spool/runtime/stream.h"

namespace spool {

constexpr int max_matmul_algorithms = 8;  // that the heuristics are asked for

struct MatmulAlgorithms {
  std::string device = {};                 // "NVIDIA H200"; empty: of none
  uint64_t library = 0;                    // version of cuBLASLt
  std::map<std::string, int> places = {};  // by form, in words: index among the heuristics'

  bool is_of_device_of(const MatmulAlgorithms& other) const {
    return device == other.device && library == other.library;
  }
};

// The table of the stream's device and library, with all forms computed so far.  Empty for a device
// whose products are not cuBLASLt's.
MatmulAlgorithms matmul_algorithms(Stream&);
MatmulAlgorithms matmul_algorithms(CudaStream&);

// Makes the stream compute products by this table, which is ignored if it is for another device or
// library.  Call it before the first product.
void use_matmul_algorithms(Stream&, const MatmulAlgorithms&);
void use_matmul_algorithms(CudaStream&, const MatmulAlgorithms&);

// From here on the stream times all algorithms for each form, and takes one behind the first if it
// is at least 2 % faster than those before it.  Accumulated results are undefined meanwhile, as
// each product is computed many times.
void time_matmul_algorithms(Stream&);
void time_matmul_algorithms(CudaStream&);

}  // namespace spool
