#pragma once

// What is planned: the steps of a run and what else it does, and what that has to fit into.

#include <functional>
#include <optional>
#include <string>

#include "spool/models/steps/planned_steps.h"
#include "spool/runtime/device.h"

namespace spool {

// A run on some machine.
struct RunSteps {
  StepDescription step = {};
  // The memory of what else it does, such as evaluations, in these chunks and with the optimizer's
  // state where the plan of the step has it; none: there is nothing else.
  std::function<MemoryStats(const StepChunks&, const Plan&)> others = {};
  // The rows of a micro-batch, and their tokens, and the same run of others, also on another
  // machine, for advice; none: nothing is known of smaller ones.
  int64_t batch = 0, seq = 0;
  std::function<RunSteps(int64_t batch, int64_t seq, const Machine&)> smaller = {};
};

struct RunRequest {
  StepRequest steps = {};                   // with the budget, or the bytes that are free
  std::optional<Device> device = {};        // none: a machine that is not here
  size_t capacity = MetaStream::unlimited;  // bytes that there are for the arena
  size_t besides = 0;  // that the program is expected to take of the same memory; 0: of another
  bool batch_is_fixed = false;  // as that of a run that resumes is, and its chunks
  // Whether a plan that is set by hand is compared with what a search finds.
  bool compares = false;
};

// The bytes that a run may take on a device where others use memory, too: what is free there, less
// a tenth on a cpu.
size_t free_memory(Device);

// Bytes that the program is expected to take of a cpu's memory besides a run's arena: what it has
// now, and an allowance for libraries and threads that was measured (benchmarks/results).  0 for
// other machines.
size_t expected_besides(const Machine&);

// Has the request fit into a device of this machine.  A budget above what there is for the arena
// becomes that; 0: none.
void limit_memory(RunRequest&, Device, size_t budget, const Machine&);
// A sentence if the budget that was asked for is above the most that there is; else empty.
std::string lowered_budget(size_t asked, const RunRequest&);
// A sentence if the run, with the program itself, takes more of a cpu's memory than is available
// now; else empty.
std::string warn_of_memory(const PlannedSteps&, const RunRequest&);

}  // namespace spool
