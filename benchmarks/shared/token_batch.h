#pragma once

// A batch for a training step: random tokens that are their own targets, the same each time.

#include "spool/models/data/batch.h"
#include "spool/models/training/training_config.h"

namespace spool::benchmarks {

TokenBatch random_batch(const TrainingConfig&);

}  // namespace spool::benchmarks
