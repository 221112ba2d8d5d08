#include "spool/models/training/faster_plan.h"

#include <algorithm>

#include "spool/models/calibration/work_kernels.h"
#include "spool/planner/machines/machine.h"

namespace spool {
namespace {

constexpr double worth_saying = 0.99;  // of the own plan's time

std::string_view name_of(const TraceSpan& span) { return span.name; }

Machine slower_rates(Machine machine, double factor) {
  machine.f32_flops /= factor;
  machine.bf16_flops /= factor;
  machine.bytes_per_second /= factor;
  machine.launch_seconds *= factor;
  if (!std::holds_alternative<CpuArchitecture>(machine.architecture)) return machine;
  machine.to_host_bytes_per_second /= factor;
  machine.from_host_bytes_per_second /= factor;
  machine.host_memory_bytes_per_second /= factor;
  return machine;
}

}  // namespace

void StepKernelTimes::measure(Stream& stream, const std::function<void()>& step) {
  const auto trace = std::make_shared<Trace>(TraceClock::processor);
  {
    const Traced traced(stream, trace);
    step();
    stream.synchronize();
  }
  steps_.push_back(kernel_spans(trace->spans()));
}

std::vector<KernelTime> StepKernelTimes::kernels(const TrainingConfig& config,
                                                 const StepPlans& plans,
                                                 const Machine& machine) const {
  if (steps_.empty()) return {};
  std::vector<KernelTime> launches;
  const auto foretold =
      kernel_spans(rehearse_step(describe_step(config), plans, machine, {.trace = true}).trace);
  const auto is_foretold = [&](const std::vector<TraceSpan>& step) {
    return std::ranges::equal(step, foretold, std::ranges::equal_to{}, name_of, name_of);
  };
  if (!std::ranges::all_of(steps_, is_foretold)) return {};
  for (size_t i = 0; i < foretold.size(); ++i) {
    std::vector<double> seconds;
    for (const std::vector<TraceSpan>& step : steps_) {
      constexpr double min = 1e-9;  // a clock may not see the shortest
      seconds.push_back(std::max(step[i].seconds(), min));
    }
    launches.push_back({.name = foretold[i].name,
                        .cost = foretold[i].cost,
                        .seconds = confirmed_min(std::move(seconds))});
  }
  return distinct(std::move(launches));
}

Machine corrected_machine(const Machine& machine, double factor,
                          const std::vector<KernelTime>& measured) {
  Machine corrected = slower_rates(machine, factor);
  std::vector<KernelTime> all = measured;
  if (machine.kernels) {
    for (KernelTime kernel : machine.kernels->all()) {
      const auto is_same = [&](const KernelTime& k) { return same_kernel(k, kernel); };
      if (std::ranges::any_of(measured, is_same)) continue;
      kernel.seconds *= factor;
      all.push_back(std::move(kernel));
    }
  }
  corrected.kernels.reset();
  if (!all.empty()) corrected.kernels = std::make_shared<KernelTimes>(std::move(all));
  return corrected;
}

std::optional<FasterPlan> find_faster_plan(const PlannedRun& run, RunRequest request,
                                           const SampleLength& sample, const Machine& machine) {
  request.steps.buckets_in_flight = run.plans.step.buckets_in_flight;
  request.steps.choose->loss_chunk = request.steps.choose->regions = false;
  const PlannedRun other = RunPlanner(run.config, request, sample, machine).plan_within(run.limit);
  const FasterPlan plans{
      .own_seconds = foretell_step(describe_step(run.config), run.plans, machine).seconds,
      .seconds = other.foretold.seconds};
  if (!other.search->fits || plans.seconds > worth_saying * plans.own_seconds) return {};
  return plans;
}

}  // namespace spool
