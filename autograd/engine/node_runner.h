#pragma once

// Runs the ops of a tape: forward, for the first time and to recompute what was not saved, and
// backward.

#include <unordered_map>

#include "spool/autograd/op.h"
#include "spool/autograd/program.h"
#include "spool/autograd/sharding/begun.h"

namespace spool {

class NodeRunner {
 public:
  // The arguments must outlive this.  Counts runs in the program.
  NodeRunner(Stream& stream, const TapeOptions& options, Program& program, Gradients& gradients);
  ~NodeRunner();
  NodeRunner(const NodeRunner&) = delete;
  NodeRunner& operator=(const NodeRunner&) = delete;

  Few<Tensor> forward(NodeId id, const Few<Tensor>& in) { return run(id, in, "forward"); }
  // The same, in backward; on the tape of a chunk, in forward too.
  Few<Tensor> recompute(NodeId, const Few<Tensor>& in);
  void backward(NodeId, Regions&);
  // Begins to gather a parameter for an op that will run, or run again; false if it has begun.
  bool begin(const Op&);
  // For the tape of a chunk: this output is computed in this memory of the whole tape.
  void place(ValueId, const Tensor& destination);

 private:
  Few<Tensor> outputs(const Node&, const Few<Tensor>& in);
  Tensor gathered(const Op&, const Tensor& in);
  Few<Tensor> run(NodeId, const Few<Tensor>& in, const char* task);
  TraceContext trace_context(NodeId, const char* task) const;
  void check_all_asked_for(NodeId, const GradientCheck&) const;

  OpContext context_;
  Program& program_;
  bool checks_gradients_;                 // see checks/gradient_check.h
  IdTable<NodeId, uint32_t> in_forward_;  // bit i: forward has computed the gradient of input i
  IdTable<ValueId, Tensor> places_;       // of outputs; empty but on the tape of a chunk
  std::unordered_map<const Op*, Begun> begun_;
};

}  // namespace spool
