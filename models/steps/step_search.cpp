#include "spool/models/steps/step_search.h"

#include <chrono>

namespace spool {
namespace {

Levers levers_of(const StepDescription& step, const StepRequest& request, const Machine& machine) {
  const Choices choose = request.choices();
  const Policy policy = request.given_policy();
  Levers levers{.placement = choose.placement};
  if (!choose.loss_chunk) levers.loss_rows = policy.loss_chunk;
  levers.state_share = choose.state_share;
  levers.regions = levers.placement && choose.regions;
  if (levers.placement) levers.send_to = choose.send_to;
  levers.host_bytes = choose.host_bytes;
  levers.fixed = request.plan ? *request.plan : plan_step(step, policy, machine);
  return levers;
}

// The search that chooses what is recomputed, whatever is set by hand.
Levers free_levers(const StepDescription& step, const StepRequest& request, const Levers& levers) {
  const Policy policy = request.given_policy();
  const Policy chunks{.loss_chunk = policy.loss_chunk,
                      .mlp_chunk = policy.mlp_chunk,
                      .in_chunks = policy.in_chunks};
  Levers chosen = levers;
  chosen.placement = true;
  chosen.regions = request.choices().regions;
  chosen.fixed = plan_step(step, chunks, Machine{});
  chosen.fixed.optimizer_state = levers.fixed.optimizer_state;
  chosen.fixed.state_bytes_on_device = levers.fixed.state_bytes_on_device;
  return chosen;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

SearchedStep searched_step(const StepDescription& step, const Machine& machine,
                           OtherPeak other_peak) {
  const StepDescription distinct = with_micro_batches(step, distinct_micro_batches);
  if (!other_peak) other_peak = [](int64_t, const Plan&) { return size_t{0}; };
  return {.machine = machine,
          .micro_batches = step.config.accumulate,
          .rehearse =
              [distinct, machine](const Plan& plan, const std::optional<Layout>& layout,
                                  const AskedOfRehearsal& asked) {
                return rehearse_step(distinct, {.step = plan, .layout = layout}, machine, asked);
              },
          .rehearse_tape =
              [step, machine](const Plan& plan) { return rehearse_tape(step, plan, machine); },
          .other_peak = std::move(other_peak)};
}

StepSearch::StepSearch(const StepDescription& step, const StepRequest& request,
                       const Machine& machine, OtherPeak other_peak) {
  const auto start = std::chrono::steady_clock::now();
  const SearchedStep searched = searched_step(step, machine, std::move(other_peak));
  levers_ = levers_of(step, request, machine);
  search_ = std::make_unique<Search>(searched, levers_);
  if (!levers_.placement) {
    free_search_ = std::make_unique<Search>(searched, free_levers(step, request, levers_));
  }
  seconds_ = seconds_since(start);
}

StepSearch::~StepSearch() = default;

// The result, compared with what could be chosen.
SearchResult StepSearch::compared(SearchResult result, size_t limit) {
  result.plan_seconds += seconds_;
  if (free_search_) {
    const SearchResult best = free_search_->plan(limit);
    result.keep_all_peak = best.keep_all_peak;
    result.keep_all_seconds = best.keep_all_seconds;
    result.lower_bound = best.lower_bound;
    result.rehearsals += best.rehearsals;
    result.plan_seconds += best.plan_seconds;
  }
  // Copies that are set by hand overlap with work in ways that no bound is known for.
  const bool copies = levers_.fixed.optimizer_state != OptimizerState::device;
  if (copies || offloads(levers_.fixed)) result.lower_bound = 0;
  return result;
}

SearchResult StepSearch::plan(size_t limit) { return compared(search_->plan(limit), limit); }

SearchResult StepSearch::keep_all_or_plan(size_t limit) {
  return compared(search_->keep_all_or_plan(limit), limit);
}

bool StepSearch::can_choose_within(size_t limit) {
  return free_search_ && free_search_->plan(limit).fits;
}

size_t StepSearch::smallest_budget() { return search_->smallest_budget(); }

size_t StepSearch::keep_all_peak() {
  return (free_search_ ? free_search_ : search_)->keep_all_peak();
}

}  // namespace spool
