#pragma once

// Tells which kernel computes attention in a step on cuda, and why, for the reports of a plan.

#include <string>

#include "spool/kernels/attention_sizes.h"
#include "spool/models/training/training_config.h"

namespace spool {

struct AttentionMethods {
  AttentionChoice forward, backward;  // backward: of the layer in the fewest parts
  int64_t parts = 1;                  // that cuDNN's backward is cut into, at most
  int64_t without_cudnn = 0;          // layers whose backward is not by cuDNN, while others' is
};
// In the parts of the configuration's chunks.
AttentionMethods attention_methods(const TrainingConfig&, const CudaArchitecture&);

}  // namespace spool
