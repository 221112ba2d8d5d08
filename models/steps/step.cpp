#include "spool/models/steps/step.h"

#include "spool/autograd/sharding/sharded_model.h"
#include "spool/models/steps/sharding/step_shards.h"

namespace spool {

StepDescription with_neighbours(StepDescription step) {
  StepConfig& config = step.config;
  if (config.zero == 3 && config.ranks > 0 && !step.shards) step.shards = whole_micro_batches();
  config.neighbours = step.shards ? step.shards->mesh.ranks() : 1;
  check(!step.shards || (config.ranks > 0 && config.ranks % config.neighbours == 0), "steps of ",
        config.ranks, " ranks cannot be cut over the mesh ",
        step.shards ? step.shards->mesh.text() : "", ", which has ", config.neighbours,
        "; StepConfig::ranks must be as many, or a multiple of them");
  return step;
}

std::unique_ptr<StepModel> make_step_model(const StepDescription& step, Stream& stream) {
  if (!step.shards) return step.make_model(stream);
  const auto& [mesh, choose] = *step.shards;
  return std::make_unique<ShardedModel>(step.make_model, choose, mesh, stream,
                                        step.config.zero == 3);
}

}  // namespace spool
