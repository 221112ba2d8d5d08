#pragma once

// How a tape records and runs, decided when it is made.

#include <span>

#include "spool/autograd/offload.h"
#include "spool/autograd/plan.h"
#include "spool/runtime/tensor.h"

namespace spool {

class GradientSink;  // gradient_sink.h
class Homes;         // homes.h
struct Survey;       // survey.h

// For the tape of a chunk (chunks/chunk.h): its place in the whole tape.
struct ChunkOfTape {
  std::span<const NodeId> nodes = {};  // the nodes of the whole tape that its own are chunks of
  Range rows = {};                     // of the index that they are cut along
  int number = 0, of = 1;              // which it is, counted from 0, of how many
  bool in_forward = false;             // it runs in the forward pass of the whole tape
  Survey* survey = nullptr;            // of the whole tape
};

struct TapeOptions {
  Plan plan = {};
  bool recording = true;  // false: nothing is saved, and there is no backward
  bool training = true;   // false: dropout does nothing
  // false: ops are recorded and not run.  Parameters need no data, no op's output can be read, and
  // there is no backward; Tape::given() has the tensors of inputs.
  bool runs = true;
  // A promise that backward will start from every loss of this tape.  Losses then compute their
  // gradients in forward, so that the logits are computed once; without backward, these remain in
  // the parameters.
  bool backward_follows = false;
  // Number of tapes the step is cut into, whose gradients add up.
  int micro_batches = 1;
  // f32 (1): what a mean loss is multiplied by, 1 / the valid targets of all micro-batches. Absent:
  // 1 / the valid targets of this tape.
  Tensor loss_scale = {};
  // i32 (4): seed (2), step, micro-batch.  Required by ops that draw random numbers.
  Tensor random = {};
  // Index in the whole batch of the first row of this tape's tensors.
  int64_t first_row = 0;
  // Required if the plan or a scope offloads.  Outlives the tape.
  Offloader* offloader = nullptr;
  // Required if the plan has units that are away.  Outlives the tape.
  Homes* homes = nullptr;
  // Is given the gradients of parameters as backward completes them.  Outlives the tape.
  GradientSink* sink = nullptr;
  // Filled by the tape if given; on meta only.  Outlives the tape.
  Survey* survey = nullptr;
  // For the engine itself: this is the tape of a chunk.  Outlives the tape.
  const ChunkOfTape* chunk = nullptr;

  bool forms_gradients_in_forward() const { return recording && backward_follows; }
  // The number of a node in the whole tape, and the survey that its work belongs to.
  NodeId whole_node(NodeId id) const { return chunk ? chunk->nodes[static_cast<size_t>(id)] : id; }
  Survey* work_survey() const { return chunk ? chunk->survey : survey; }
};

}  // namespace spool
