#pragma once

// Chooses how the rows of a step are split into micro-batches, for a run that is given the tokens
// of a step.  The split changes the order of sums, so no measurement decides it: plans are searched
// for by the clock of a nominal machine (planner/machine.h).

#include <cstdint>
#include <optional>
#include <vector>

#include "spool/runtime/stream.h"

namespace spool {

struct RunOptions;
struct SampleLength;

// A step in `accumulate` micro-batches of `batch` rows.
struct StepSplit {
  int64_t batch = 0, accumulate = 0;
  // By the nominal clock: of the fastest plan that was found, or, if none was searched for, of
  // keeping everything, which no plan is faster than.
  double seconds = 0, keep_all_seconds = 0;
  bool is_searched = false;
  bool fits = true;  // false: no plan is within the memory
};

struct SplitChoice {
  std::vector<StepSplit> all = {};  // by the rows of a micro-batch
  size_t chosen = 0;  // index of the fastest; if none fits, of that with the smallest peak
  int threads = 0;    // of a cpu, with whose workspaces plans were searched for

  bool fits() const { return all[chosen].fits; }
  int64_t searched() const;
  // The splits with the next smaller and the next larger micro-batches.
  std::vector<StepSplit> neighbours() const;
};

// If the options say the tokens of a step, sets the rows of a micro-batch and the number of
// micro-batches: the fastest whose plan is within the run's budget, or without one the memory.
// Nothing for a run that resumes, which keeps its split.  `machine` only says which kind it is.
std::optional<SplitChoice> choose_split(RunOptions&, const Machine& machine, size_t memory,
                                        const SampleLength&);
// The same on the options' device, with its whole memory.
std::optional<SplitChoice> choose_split(RunOptions&, const SampleLength&);

}  // namespace spool
