#pragma once

// Attention forward: each query against its own and all earlier keys, or against all keys, for a
// whole text; or, over a cache, for its last part.

#include "spool/kernels/cuda/attention_tiles.cuh"

namespace spool::cuda {

template <class T>
struct ForwardHeads {
  HeadArray<const T> queries, keys, values;
  HeadArray<T> y;
  float* lse = nullptr;             // (B, H, length); may be absent
  int64_t B = 0, H = 0, group = 1;  // `group` query heads share a key head
  int64_t length = 0, past = 0;     // query i < length belongs to the token of key past + i
  int64_t common = 0;          // the first keys, which every query sees beside those up to its own
  const int* first = nullptr;  // (B, length): the first key that a query sees; may be absent
  const int* text_first = nullptr;  // (B): the same for all queries from it on, while earlier
                                    // ones see their own key alone; may be absent
  int D = 0;
  bool fours = false;
  float scale = 1;
};

template <class T>
void launch_forward(const ForwardHeads<T>&, const CudaStream&);

extern template void launch_forward(const ForwardHeads<float>&, const CudaStream&);
extern template void launch_forward(const ForwardHeads<__nv_bfloat16>&, const CudaStream&);

}  // namespace spool::cuda
