#include "spool/models/steps/step_graphs.h"

namespace spool {

void StepGraphs::begin_step(const Stream& stream) {
  const uint64_t placement = stream.memory().placement;
  if (placement != placement_ || !std::exchange(ended_, false)) graph_of_kind_ = {};
  placement_ = placement;
}

void StepGraphs::enqueue(bool first, bool last, const std::function<void()>& work, Stream& stream) {
  Graph& graph = graph_of_kind_[(first ? 2u : 0u) + (last ? 1u : 0u)];
  if (!graph) graph = stream.capture(work);
  stream.replay(graph);
}

}  // namespace spool
