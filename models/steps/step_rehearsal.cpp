#include "spool/models/steps/step_rehearsal.h"

#include <algorithm>

#include "spool/autograd/fingerprint.h"
#include "spool/kernels/weights.h"
#include "spool/models/optimizers/buckets.h"
#include "spool/models/steps/step_executor.h"
#include "spool/planner/offsets.h"
#include "spool/runtime/integer.h"

namespace spool {

StepDescription with_micro_batches(StepDescription step, int64_t max) {
  const int64_t replicas = std::max(step.config.replicas(), 1);
  step.config.accumulate = std::min(step.config.accumulate, max * replicas);
  return step;
}

RehearsedTape rehearse_tape(const StepDescription& step, const Plan& plan, const Machine& of_device,
                            KeptModels* kept) {
  RehearsedTape rehearsed;
  Machine machine = of_device;
  if (step.shards) machine.mesh.ranks = step.config.ranks;
  const bool keeps = kept && machine.mesh.ranks == step.config.ranks;
  KeptModels on = take_model(keeps ? kept : nullptr, machine, {});
  const Spec scalar{Shape{1}, accumulator(step.config.dtype)};
  rehearsed.program = run_micro_batch(on->model(step, {}), on->stream(),
                                      {.plan = plan,
                                       .loss_scale = Tensor(scalar, on->stream()),
                                       .random = Tensor({Shape{4}, DType::i32}, on->stream()),
                                       .survey = &rehearsed.survey},
                                      Tensor(scalar, on->stream()));
  Report report;
  if (on->end(report, keeps)) *kept = std::move(on);
  return rehearsed;
}

namespace {

// Moves the history to the clock of the trace, whose first device span begins when the step does.
AllocationHistory on_clock_of(const std::vector<TraceSpan>& trace, double begin,
                              AllocationHistory history) {
  const auto first = std::ranges::find(trace, TraceLane::compute, &TraceSpan::lane);
  const double later = (first == trace.end() ? 0 : first->begin) - begin;
  for (double& time : history.times) time += later;
  return history;
}

}  // namespace

RehearsedStep rehearse_step(const StepDescription& step, const StepPlans& plans,
                            const Machine& of_device, const RehearsalOptions& asked,
                            KeptModels* kept) {
  Machine machine = of_device;
  machine.mesh.ranks = step.config.ranks;
  RehearsedStep rehearsed;
  Report& report = rehearsed.report;
  double begin = 0;
  const auto trace = asked.trace || asked.allocations ? std::make_shared<Trace>() : nullptr;
  const bool keeps = kept && !trace && !asked.at_peak;
  KeptModels on = take_model(keeps ? kept : nullptr, machine, plans.step);
  {
    MetaStream& stream = on->stream();
    std::optional<AllocationLog> log;
    if (asked.at_peak || asked.lifetimes || asked.allocations) {
      log.emplace(
          stream.arena(), [&stream] { return stream.now(); }, trace.get());
    }
    StepModel& model = on->model(step, plans.step);
    StepExecutor executor(model, step.config, plans, stream);
    const bool is_in_parts = step.shards || has_homes(plans.step);
    if (is_in_parts) model.parameters().initialise(step.config.seed);  // which takes memory
    executor.optimizer().initialise();
    if (asked.survey) executor.survey(&rehearsed.survey);
    const Traced traced(stream, trace);
    begin = stream.now();
    if (log) rehearsed.first_event = log->events();
    executor.run(Step{}, [&](int64_t) { model.upload_placeholder(); });
    report.seconds = stream.now() - begin;
    if (asked.lifetimes) rehearsed.lifetimes = log->lifetimes(rehearsed.first_event);
    if (asked.allocations) rehearsed.allocations = log->history();
    if (asked.at_peak) report.at_peak = live_at_peak(*log);
    report.host = executor.host_memory();
    report.disk = executor.disk();
  }
  if (on->end(report, keeps)) *kept = std::move(on);
  if (trace) rehearsed.trace = trace->spans();
  if (asked.allocations) {
    rehearsed.allocations = on_clock_of(rehearsed.trace, begin, std::move(rehearsed.allocations));
  }
  return rehearsed;
}

Report foretell_step(const StepDescription& step, const StepPlans& plans, const Machine& machine,
                     const RehearsalOptions& asked, KeptModels* kept) {
  const int64_t all = step.config.micro_batches_of_rank();
  const int64_t rehearsed = std::min(all, distinct_micro_batches), left_out = all - rehearsed;
  const auto report_of = [&](int64_t micro_batches) {
    return rehearse_step(with_micro_batches(step, micro_batches), plans, machine, asked, kept)
        .report;
  };
  Report report = report_of(rehearsed);
  if (left_out == 0) return report;
  const double of_one = report.seconds - report_of(rehearsed - 1).seconds;
  report.seconds += static_cast<double>(left_out) * of_one;
  return report;
}

SearchedStep searched_step(const StepDescription& step, const Machine& machine,
                           OtherPeak other_peak, int buckets_in_flight) {
  const auto kept = std::make_shared<KeptModels>();
  const StepDescription distinct = with_micro_batches(step, distinct_micro_batches);
  if (!other_peak) other_peak = [](const Plan&) { return size_t{0}; };
  return {.machine = machine,
          .micro_batches = step.config.micro_batches_of_rank(),
          .rehearse =
              [=](const Plan& plan, const std::optional<Layout>& layout,
                  const RehearsalOptions& asked) {
                StepPlans plans{.step = plan, .layout = layout};
                if (buckets_in_flight > 0) plans.step.buckets_in_flight = buckets_in_flight;
                return rehearse_step(distinct, plans, machine, asked, kept.get());
              },
          .rehearse_tape =
              [=](const Plan& plan) { return rehearse_tape(step, plan, machine, kept.get()); },
          .other_peak = std::move(other_peak)};
}

Plan plan_step(const StepDescription& step, const Policy& policy, const Machine& machine) {
  Plan plan = plan_from_policy(
      policy, machine, [&](const Plan& of_tape) { return rehearse_tape(step, of_tape, machine); });
  const bool streams = plan.optimizer_state == OptimizerState::streamed;
  if (has_homes(plan) && streams) plan.bucket_elements = fitting_buckets(step, plan, machine);
  return plan;
}

int64_t fitting_buckets(const StepDescription& step, const Plan& plan, const Machine& machine) {
  constexpr int64_t min_elements = int64_t{1} << 15;  // smaller copies are mostly latency
  int64_t elements = 0;
  {
    MetaStream stream{machine};
    const std::unique_ptr<StepModel> model = make_step_model(step, stream, plan);
    for (const Parameter* p : model->parameters().trainable()) elements += p->spec().shape.numel();
  }
  KeptModels kept;
  const auto peak_with = [&](int64_t bucket_elements) {
    StepPlans plans{.step = plan};
    plans.step.bucket_elements = bucket_elements;
    const StepDescription few = with_micro_batches(step, distinct_micro_batches);
    return rehearse_step(few, plans, machine, {}, &kept).report.memory.peak;
  };
  int64_t chosen = Buckets::usual_size(elements);
  size_t peak = peak_with(chosen);
  for (int64_t half = chosen / 2; half >= min_elements; half /= 2) {
    half = round_up(half, weights_granule);
    const size_t smaller = peak_with(half);
    if (smaller >= peak) break;
    peak = smaller;
    chosen = half;
  }
  return chosen;
}

std::vector<uint64_t> step_fingerprints(const StepDescription& step) {
  return fingerprints(rehearse_tape(step, {}, {}).program);
}

Lifetimes record_step(const StepDescription& step, const StepPlans& plans, const Machine& machine) {
  const StepDescription distinct = with_micro_batches(step, distinct_micro_batches);
  return rehearse_step(distinct, plans, machine, {.lifetimes = true}).lifetimes;
}

std::optional<Layout> lay_out_step(const StepDescription& step, StepPlans plans,
                                   const Machine& machine) {
  const StepDescription distinct = with_micro_batches(step, distinct_micro_batches);
  plans.layout.reset();
  RehearsedStep best_fit = rehearse_step(distinct, plans, machine, {.lifetimes = true});
  plans.layout = assign_offsets(std::move(best_fit.lifetimes));
  const RehearsedStep placed = rehearse_step(distinct, plans, machine);
  const bool pays = placed.report.memory.peak < best_fit.report.memory.peak;
  return pays ? std::move(plans.layout) : std::nullopt;
}

}  // namespace spool
