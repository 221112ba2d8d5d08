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
};

// The arguments of both kernels.
struct TensorBackward {
  TensorHeads in;
  HeadArray<const bf16> dy;
  const float *lse, *delta;  // (B, H, T)
  Gradient out;
  float scale;  // as given

  // Writes `factor` times a warp's rows, 16 of them, of head h among all heads.
  template <class S>
  __device__ void write(unsigned b, unsigned h, int row, float (&x)[S::D / 8][4],
                        float* memory) const {
    const int count = in.T - row;
    const int64_t at = b * out.text + row * out.row + int64_t{h} * in.D;
    if (out.f32) {
      const RowSink<float> to{static_cast<float*>(out.data) + at, out.row, count, in.D,
                              out.accumulate};
      write_rows<S>(to, x, memory);
    } else {
      const RowSink<bf16> to{static_cast<bf16*>(out.data) + at, out.row, count, in.D,
                             out.accumulate};
      write_rows<S>(to, x, memory);
    }
  }
};

// Shared memory for a block's own rows, of two tensors, and the tiles of the other side;
// write_rows() reuses it after the last tile.
template <class S>
constexpr size_t gradient_shared = std::max((2 * S::row_tile + 4 * S::other_tile) * sizeof(bf16),
                                            S::warps* S::written_tile * sizeof(float));

// Writes dk and dv.
void launch_tensor_dkeys(const TensorBackward&, const CudaStream&);

}  // namespace spool::cuda
