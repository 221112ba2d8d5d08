#include "spool/models/steps/step_search.h"

namespace spool {

SearchedStep searched_step(const StepDescription& step, const Machine& machine,
                           std::function<size_t(int64_t loss_rows, const Plan&)> other_peak) {
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

}  // namespace spool
