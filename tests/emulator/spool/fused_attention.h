#pragma once

// The stand-in for cuDNN's attention (kernels/cuda/attention_fused.cuh): counts its calls.

namespace emulator {

struct FusedAttention {
  int forwards = 0, backwards = 0;
};
FusedAttention& fused_attention();

}  // namespace emulator
