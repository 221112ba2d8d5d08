#pragma once

// Synthetic models: ops of given seconds and bytes, in chains, random graphs and stacks of equal
// layers, that run on the real tape on the meta device.

#include <vector>

#include "spool/planner/search/search.h"
#include "spool/runtime/random.h"

namespace spool::testing {

// An op.  Bytes are counted in granules of the arena.
struct SyntheticOp {
  std::vector<int> inputs = {};  // positions of ops in the model; -1: the model's input
  int64_t output = 1;
  int64_t statistics = 0;  // of a second output, which backward reads; 0: none
  int64_t parameter = 0;   // of a parameter that it reads; 0: none
  int64_t scratch = 0, backward_scratch = 0;
  double forward = 1, backward = 2;  // seconds
  bool saves_inputs = true, saves_output = false;
  bool is_recomputable = true;
  int64_t rows = 1;  // max chunks of forward's scratch; each further chunk takes time
  int layer = -1;    // consecutive ops with the same number are a scope; -1: none
};

// The last op is followed by a loss of one element, which reads it and saves nothing.
struct SyntheticModel {
  std::vector<SyntheticOp> ops = {};
  int64_t input = 1;   // granules
  int64_t update = 0;  // granules that the optimizer needs
  double update_seconds = 1;
  int64_t micro_batches = 1;
};

// A machine on which a synthetic op takes its seconds.
Machine synthetic_machine();

SearchedStep searched_step(const SyntheticModel&);
Program program_of(const SyntheticModel&);

// A random number from `min` to `max`.
int64_t draw(Random&, int64_t min, int64_t max);
bool draw_bool(Random&, double probability = 0.5);

// An op of random costs that reads the one before and some others.
SyntheticOp random_op(Random&, int position);
SyntheticModel random_graph(Random&, int ops);
// Equal random layers, each of which reads what the one before has computed, and an op that can run
// in chunks if `rows` is more than 1.
struct StackOptions {
  int layers = 4, ops = 3;
  int64_t rows = 1;
};
SyntheticModel random_stack(Random&, const StackOptions&);

// The model with all times and all sizes multiplied.
SyntheticModel scaled(SyntheticModel, double seconds, int64_t bytes);

// The values that a plan may recompute: those of recomputable ops.
std::vector<ValueId> recomputable_values(const Program&);
// Random placements, and chunks if the program can be cut into some.
Plan random_plan(Random&, const Program&);

// The costs of a rehearsed plan that is laid out as a search does it.
struct LaidOut {
  size_t peak = 0;
  double seconds = 0;
};
LaidOut laid_out(const SearchedStep&, const Plan&);

}  // namespace spool::testing
