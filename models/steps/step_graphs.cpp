#include "spool/models/steps/step_graphs.h"

namespace spool {

void StepGraphs::begin_step(const Stream& stream) {
  const uint64_t live_hash = stream.memory().live_hash;
  if (live_hash != live_hash_) discard();
  live_hash_ = live_hash;
}

void StepGraphs::enqueue(bool first, bool last, const std::function<void()>& work, Stream& stream) {
  Graph& graph = graph_of_kind_[(first ? 2u : 0u) + (last ? 1u : 0u)];
  if (!graph) graph = stream.capture(work);
  stream.replay(graph);
}

}  // namespace spool
