#include "token_batch.h"

#include "spool/runtime/random.h"

namespace spool::benchmarks {

TokenBatch random_batch(const TrainingConfig& config) {
  TokenBatch batch;
  batch.clear(config.rows_per_step(), config.seq);
  Random random(1);
  for (int32_t& t : batch.tokens) {
    t = static_cast<int32_t>(random.next() %
                             static_cast<uint64_t>(config.model.shape().vocabulary));
  }
  batch.targets = batch.tokens;
  batch.valid = config.tokens_per_step();
  return batch;
}

}  // namespace spool::benchmarks
