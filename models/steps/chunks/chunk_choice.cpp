#include "spool/models/steps/chunks/chunk_choice.h"

#include <algorithm>
#include <tuple>

#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/machines/machine.h"

namespace spool {

StepChunks chunks_of(const Policy& policy) {
  return {.loss_rows = policy.loss_chunk, .mlp_rows = policy.mlp_chunk, .nodes = policy.in_chunks};
}

StepChunks chunks_of(const Plan& plan, int64_t loss_rows, const Policy& policy) {
  StepChunks chunks = chunks_of(policy);
  chunks.loss_rows = loss_rows;
  if (chunks.mlp_rows == 0) chunks.nodes = nodes_in_chunks(plan);
  return chunks;
}

Policy with_chunks(Policy policy, const StepChunks& chunks) {
  policy.loss_chunk = chunks.loss_rows;
  policy.mlp_chunk = chunks.mlp_rows;
  policy.in_chunks = chunks.nodes;
  return policy;
}

Levers levers_of(const StepDescription& step, const StepRequest& request, const Machine& machine) {
  const Choices choose = request.choices();
  const Policy policy = request.given_policy();
  Levers levers{.placement = choose.placement};
  if (!choose.loss_chunk) levers.loss_rows = policy.loss_chunk;
  levers.state_share = choose.state_share;
  levers.regions = levers.placement && choose.regions;
  if (levers.placement) levers.offload_to = choose.offload_to;
  levers.host_bytes = choose.host_bytes;
  levers.fixed = request.plan ? *request.plan : plan_step(step, policy, machine);
  if (levers.placement && levers.fixed.bucket_elements > 0 && !request.plan) {
    Policy tight = policy;  // the buckets of a small budget have to fit beside little else
    tight.block = true;
    levers.fixed.bucket_elements = plan_step(step, tight, machine).bucket_elements;
  }
  return levers;
}

Levers free_levers(const StepDescription& step, const StepRequest& request, const Levers& levers) {
  Levers chosen = levers;
  chosen.placement = true;
  chosen.regions = request.choices().regions;
  chosen.fixed = plan_step(step, with_chunks({}, chunks_of(request.given_policy())), Machine{});
  chosen.fixed.optimizer_state = levers.fixed.optimizer_state;
  chosen.fixed.state_bytes_on_device = levers.fixed.state_bytes_on_device;
  return chosen;
}

std::vector<int> threads_to_choose_for(int own) {
  std::vector<int> threads;
  for (int more = 8; more > own && own > 0; more /= 2) threads.push_back(more);
  threads.push_back(own);
  return threads;
}

int threads_of(const Machine& machine) {
  const auto* cpu = std::get_if<CpuArchitecture>(&machine.architecture);
  return cpu ? cpu->threads : 0;
}

Machine with_threads(Machine machine, int threads) {
  if (auto* cpu = std::get_if<CpuArchitecture>(&machine.architecture)) cpu->threads = threads;
  return machine;
}

bool has_nominal_clock(const Machine& machine) {
  const auto rates = [](const Machine& m) {
    return std::tuple(m.f32_flops, m.bf16_flops, m.bytes_per_second, m.to_host_bytes_per_second,
                      m.from_host_bytes_per_second, m.host_memory_bytes_per_second,
                      m.disk_bytes_per_second, m.launch_seconds);
  };
  return !machine.kernels && rates(machine) == rates(nominal_machine(machine));
}

Levers with_chunks_of(const FoundPlan& found, Levers levers) {
  levers.loss_rows = found.loss_rows;
  levers.regions = false;
  if (!levers.placement) return levers;
  std::erase_if(levers.fixed.regions, [](const Region& r) { return r.chunks > 1; });
  std::ranges::copy_if(found.plan.regions, std::back_inserter(levers.fixed.regions),
                       [](const Region& r) { return r.chunks > 1; });
  return levers;
}

ChunkChoice::ChunkChoice(const Machine& machine, bool is_free, SearchOn search_on)
    : nominal_(nominal_machine(machine)),
      is_free_(is_free),
      search_on_(std::move(search_on)),
      threads_(is_free ? threads_to_choose_for(threads_of(machine))
                       : std::vector{threads_of(machine)}) {}

Search& ChunkChoice::search(int threads) {
  std::unique_ptr<Search>& at = searches_[threads];
  if (!at) at = search_on_(with_threads(nominal_, threads));
  return *at;
}

SearchResult ChunkChoice::plan(int threads, size_t limit) {
  Search& by_nominal_clock = search(threads);
  return is_free_ ? by_nominal_clock.keep_all_or_plan(limit) : by_nominal_clock.plan(limit);
}

}  // namespace spool
