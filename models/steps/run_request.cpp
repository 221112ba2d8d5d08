#include "spool/models/steps/run_request.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "spool/runtime/cuda/device.h"
#include "spool/runtime/memory/host_memory.h"
#include "spool/runtime/units.h"

namespace spool {

std::function<size_t(const Plan&)> other_peak_of(const RunSteps& run) {
  using Key = std::tuple<OptimizerState, size_t, std::vector<int64_t>>;
  if (!run.others) return {};
  const auto known = std::make_shared<std::map<Key, size_t>>();
  return [run, known](const Plan& plan) {
    const auto [at, is_new] =
        known->try_emplace({plan.optimizer_state, plan.state_bytes_on_device, homes_of(plan)});
    if (is_new) at->second = run.others(plan, /*limit=*/0, /*most=*/0).peak;
    return at->second;
  };
}

size_t free_memory(Device device) {
  const size_t all = device_memory(device);
  if (device.type != DeviceType::cpu) return all;
  return std::min(all, available_host_memory()) / 10 * 9;
}

size_t whole_memory(Device device) {
#if SPOOL_CUDA
  if (device.type == DeviceType::cuda) return cuda_device(device.index).bytes - cuda_library_bytes;
#endif
  return device_memory(device) / 10 * 9;
}

size_t expected_program_bytes(const Machine& machine) {
  constexpr size_t of_libraries = size_t{24} << 20, of_a_thread = size_t{2} << 20;
  const auto* cpu = std::get_if<CpuArchitecture>(&machine.architecture);
  if (!cpu) return 0;
  return resident_memory() + of_libraries + of_a_thread * static_cast<size_t>(cpu->threads);
}

namespace {

void limit_to(RunRequest& request, std::optional<size_t> memory, size_t budget) {
  request.capacity =
      memory ? *memory - std::min(*memory, request.program_bytes) : MetaStream::unlimited;
  request.steps.budget = std::min(budget, request.capacity);
  request.steps.free = request.capacity;
  request.ranks = 1;
}

}  // namespace

void limit_memory(RunRequest& request, Device device, size_t budget, const Machine& machine) {
  request.program_bytes = expected_program_bytes(machine);
  limit_to(request, device_memory(device), budget);
  request.device = device;
  request.steps.free = std::min(free_memory(device), request.capacity);
}

void limit_memory(RunRequest& request, std::optional<size_t> memory, size_t budget,
                  const Machine& machine) {
  request.device.reset();
  // What this program uses now says nothing of another machine.
  request.program_bytes = expected_program_bytes(machine) -
                          std::min(expected_program_bytes(machine), resident_memory());
  limit_to(request, memory, budget);
}

std::string lowered_budget(size_t asked, const RunRequest& request) {
  if (asked <= request.capacity) return {};
  const bool is_of_ranks = request.ranks > 1;
  return sentence("the budget of ", format_bytes(asked),
                  is_of_ranks ? sentence(" of each of ", request.ranks, " ranks") : "",
                  " is more than the ", format_bytes(request.capacity), " that the ",
                  request.device ? "device" : "machine", " has for it, and becomes that");
}

std::string warn_of_memory(const PlannedSteps& planned, const RunRequest& request) {
  if (!request.device || request.device->type != DeviceType::cpu) return {};
  const Report& foretold = planned.foretold;
  const size_t of_rank = foretold.memory.peak + foretold.host.peak;
  const size_t expected = request.ranks * of_rank + request.program_bytes;
  const size_t available = available_host_memory();
  if (planned.refusal || expected <= available) return {};
  return sentence("this run is expected to take ", format_bytes(expected),
                  " of memory in all, and ", format_bytes(available),
                  " is available now: other programs may be swapped out, or one be killed");
}

}  // namespace spool
