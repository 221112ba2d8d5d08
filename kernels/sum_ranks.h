#pragma once

// What ranks (runtime/ranks/communicator.h) add up, for many slices at once:
//   out[i] = ((x_0[i] + x_1[i]) + x_2[i]) + ...               x_r: the term of rank r
//   out[i] = (((out[i] + x_0[i]) + x_1[i]) + x_2[i]) + ...    if it accumulates
// in f32 (f64 for f64), from the first rank to the last, each addition rounded by itself; where out
// is bf16, the last sum is rounded to it.  So the bits depend on the order of the ranks alone: not
// on how the slices are cut, on how their bytes came here, or on the device.
//
// Types: pieces   own           out
//        f64      f64           f64
//        f32      f32 or bf16   f32
//        bf16     bf16          bf16 or f32
//
// This rank's term is a tensor of its own; those of the others lie in the pieces that they sent.
// `out` may be `own`, of the same type; otherwise it shares no memory with other arguments.

#include <optional>

#include "spool/kernels/launch.h"
#include "spool/kernels/list.h"

namespace spool {

struct SumRanks {
  static constexpr const char* name = "sum_ranks";
  static constexpr int max_ranks = 64;
  struct Entry {
    Grad out;        // (n)
    View own;        // (n)
    int64_t at = 0;  // where the slice begins in the pieces of the others, in elements
  };
  List<Entry, 64> slices = {};
  // By rank: the elements that it sent, from their first on; null for this rank.
  List<const void*, max_ranks> pieces = {};
  std::optional<DType> sent = {};  // the type of the pieces; absent: f32 or f64, as out is

  DType type_sent(const Entry& e) const { return sent.value_or(e.out.view.dtype()); }
  int ranks() const { return pieces.size(); }
  // Throws if these are more ranks than one sum takes.
  static void check_ranks(int64_t ranks);
  void check_arguments() const;
  Cost cost() const;
};

void run(const SumRanks&, CpuStream&);
void run(const SumRanks&, CudaStream&);

}  // namespace spool
