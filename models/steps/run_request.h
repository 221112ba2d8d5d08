#pragma once

// What is to be planned: the steps of a run, its other work, and the memory that it must fit into.

#include <functional>
#include <optional>
#include <string>

#include "spool/models/steps/planned_steps.h"
#include "spool/runtime/device.h"

namespace spool {

// The work of a run, for any machine.
struct RunSteps {
  StepDescription step = {};
  // The memory of the run's other work, such as evaluations, with the optimizer's state where the
  // plan of the step places it: in as few chunks as fit into `limit` bytes, or, if none do, in
  // those that take fewest; a run that resumes keeps its chunks while they fit into `most`.  None:
  // there is no other work.
  std::function<MemoryStats(const Plan& step, size_t limit, size_t most)> others = {};
  // The shape of a micro-batch, and the same run with another shape or machine, for advice; none:
  // no advice on smaller shapes.
  int64_t batch = 0, seq = 0;
  std::function<RunSteps(int64_t batch, int64_t seq, const Machine&)> smaller = {};
};

// The smallest peak of the other work, computed once for each place of the state; empty: none.
std::function<size_t(const Plan&)> other_peak_of(const RunSteps&);

struct RunRequest {
  StepRequest steps = {};                   // with the budget, or the free bytes
  std::optional<Device> device = {};        // none: a machine that is not here
  size_t capacity = MetaStream::unlimited;  // bytes available for the arena
  size_t ranks = 1;          // that share the memory; the budget and the capacity are of one
  size_t program_bytes = 0;  // bytes of the same memory that the program takes outside it; 0: none
  // Bytes of a GPU's host that were given: parameters and gradients may not live in more there.
  std::optional<size_t> host_limit = {};
  bool batch_is_fixed = false;  // with its chunks, as when a run resumes
  // Whether the micro-batches were chosen: within the budget, or without one the whole memory.
  bool split_is_chosen = false;
  // Whether a plan that is set by hand is compared with a search's.
  bool compares = false;
};

// The bytes that a run may take of a device that others use, too: the free ones, less a tenth on a
// cpu.
size_t free_memory(Device);
// The same as if no other program used the device.
size_t whole_memory(Device);

// The bytes of a cpu's memory that the program is expected to take outside a run's arena: what it
// uses now, and a measured allowance for libraries and threads (benchmarks/results).  0 for other
// machines.
size_t expected_program_bytes(const Machine&);

// Limits the request to the memory of this machine's device, and lowers a budget above that; 0: no
// budget.
void limit_memory(RunRequest&, Device, size_t budget, const Machine&);
// The same for a machine that is not here, with all of its memory free; none: of unknown memory.
void limit_memory(RunRequest&, std::optional<size_t> memory, size_t budget, const Machine&);
// A message if the requested budget exceeds the available memory; else empty.
std::string lowered_budget(size_t asked, const RunRequest&);
// A message if the run and the program itself take more of a cpu's memory than is available now;
// else empty.
std::string warn_of_memory(const PlannedSteps&, const RunRequest&);

}  // namespace spool
