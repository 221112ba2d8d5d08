#pragma once

// The stand-in for cuDNN's attention (kernels/cuda/attention_fused.cuh): what it was asked for.

namespace emulator {

struct FusedAttention {
  int forwards = 0, backwards = 0;
};
FusedAttention& fused_attention();

}  // namespace emulator
