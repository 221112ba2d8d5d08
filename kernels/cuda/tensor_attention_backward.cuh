#pragma once

// The arguments of the two kernels of attention backward on tensor cores.

#include "spool/kernels/cuda/tensor_attention_tiles.cuh"

namespace spool::cuda {

constexpr float log2_of_e = 1.44269504088896341f;

// The heads of dqkv, of either type.
struct Gradient {
  void* data;
  int64_t text, row;
  bool f32, accumulate;

  // Rows of `columns` numbers, from number `at` on.
  template <class G>
  __device__ RowSink<G> rows(int64_t at, int count, int columns) const {
    return {static_cast<G*>(data) + at, row, count, columns, accumulate};
  }
};

// The arguments of both kernels.
struct TensorBackward {
  TensorHeads in;
  HeadArray<const bf16> dy;
  const float *lse, *delta;  // (B, H, T)
  Gradient out;
  float scale;  // as given

  // Writes a warp's rows, 16 of them, of head h of `to`.
  template <class S>
  __device__ void write(const Gradient& to, unsigned b, unsigned h, int row,
                        float (&x)[S::D / 8][4], float* memory) const {
    const int count = in.T - row;
    const int64_t at = b * to.text + row * to.row + int64_t{h} * in.D;
    if (to.f32) {
      write_rows<S>(to.rows<float>(at, count, in.D), x, memory);
    } else {
      write_rows<S>(to.rows<bf16>(at, count, in.D), x, memory);
    }
  }
};

// Shared memory for a block's own rows, of two tensors, and the tiles of the other side;
// write_rows() reuses it after the last tile.
template <class S>
constexpr size_t gradient_shared = std::max((2 * S::row_tile + 4 * S::other_tile) * sizeof(bf16),
                                            S::warps* S::written_tile * sizeof(float));

// Writes dk and dv.  `parts`: memory for those of parts of the query heads.
void launch_tensor_dkeys(const TensorBackward&, float* parts, const CudaStream&);

}  // namespace spool::cuda
