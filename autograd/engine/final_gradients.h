#pragma once

// Tells a sink when the gradient of a parameter is final: after the backward of the first node that
// reads it.

#include <unordered_set>
#include <utility>
#include <vector>

#include "spool/autograd/gradient_sink.h"
#include "spool/autograd/program.h"

namespace spool {

class FinalGradients {
 public:
  // Without a sink it does nothing.
  FinalGradients(const Program& program, GradientSink* sink) : sink_(sink) {
    if (!sink) return;
    std::unordered_set<const Parameter*> read;
    for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
      for (const ValueId v : program.nodes[n].inputs) {
        Parameter* const p = program.values[v].trains;
        if (p && read.insert(p).second) first_readers_.emplace_back(n, p);
      }
    }
    sink->begin_backward();
  }

  bool has_any(NodeId id) const {
    return !first_readers_.empty() && first_readers_.back().first >= id;
  }
  void after_backward(NodeId id) {
    for (; has_any(id); first_readers_.pop_back()) {
      sink_->is_final(*first_readers_.back().second);
    }
  }
  void end() {
    if (sink_) sink_->end_backward();
  }

 private:
  GradientSink* sink_;
  std::vector<std::pair<NodeId, Parameter*>> first_readers_;  // in the order of the nodes
};

}  // namespace spool
