#pragma once

// A small random model: what a tape on meta has recorded.  An enactment applies its ops again, to
// tensors of a device; see mixture_testing.h.

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "spool/autograd/tape.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

// Called by ops and hooks with the name of each place in them where something may fail.
using AtPlace = std::function<void(const char* place)>;

struct ProgramOptions {
  int ops = 14;                  // at least, before the losses
  bool backward_follows = true;  // of the tapes it runs on
};

// Stock ops, and ops that save their output, save two values, have two outputs, or pass their
// gradient on.  Its inputs are those of `inputs`, in this order, and then come the parameters.
struct Program {
  static constexpr int64_t B = 2, T = 4, C = 8, V = 11;

  Program(Random&, const ProgramOptions&);
  Program(const Program&) = delete;  // its ops refer to it
  Program& operator=(const Program&) = delete;

  std::unique_ptr<MetaStream> stream = std::make_unique<MetaStream>(Machine{});
  std::deque<Parameter> parameters = {};  // without values
  std::vector<Tensor> inputs = {};        // i32 tokens and targets (B, T), f32 (B, T, C)
  bool input_needs_grad = false;          // the last one
  AtPlace at_place = {};                  // for ops of its own
  std::unique_ptr<Tape> tape = {};
  ValueId loss = -1;

  size_t index_of(const Parameter*) const;
  // The nodes before the first that cannot be recomputed.
  NodeId recomputable_nodes() const;
};

}  // namespace spool::testing
