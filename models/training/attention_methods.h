#pragma once

// Tells which kernel computes attention in a step on cuda, and why, for the reports of a plan.

#include <string>

#include "spool/kernels/attention_sizes.h"
#include "spool/models/training/training_config.h"

namespace spool {

struct AttentionMethods {
  AttentionChoice forward, backward;
  int64_t parts = 1;  // that cuDNN's backward is cut into
};
AttentionMethods attention_methods(const TrainingConfig&, const CudaArchitecture&);

}  // namespace spool
