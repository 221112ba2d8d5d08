#include "spool/models/training/planned_run.h"

#include <algorithm>
#include <array>

#include "spool/models/inference/generator.h"
#include "spool/models/training/budget.h"
#include "spool/models/training/trainer.h"

namespace spool {

namespace {

// Only chunks change results, so a run has its own, whatever its plan.
void check_chunks(const Plan& given, const Plan& own, const TrainingConfig& config) {
  check_setting(given.chunks == own.chunks, {"plan", "chunk-loss"},
                "the plan cuts the loss into chunks of another size than this run's, which is ",
                config.loss_chunk, " rows; give the number of rows it was made with");
  const auto in_chunks = [](const Plan& plan) {
    std::vector<std::array<int, 3>> all;
    for (const Region& r : plan.regions) {
      if (r.chunks > 1) all.push_back({r.first, r.last, r.chunks});
    }
    return all;
  };
  check_setting(in_chunks(given) == in_chunks(own), {"plan", "chunk-mlp"},
                "the plan runs other nodes in chunks, or in chunks of another size, than this run, "
                "whose MLPs have chunks of ",
                config.mlp_chunk, " rows (0: all rows); give the number of rows it was made with");
}

}  // namespace

StepDescription describe_step(const TrainingConfig& config) {
  return {.make_model =
              [config](Stream& stream) {
                auto model = std::make_unique<TrainedGpt2>(config, Plan{}, stream);
                model->gpt2().initialise(config.seed);
                return model;
              },
          .config = config.step()};
}

TrainingPlans make_plans(const TrainingConfig& config, Policy policy, const Machine& machine) {
  policy.loss_chunk = config.loss_chunk;
  policy.mlp_chunk = config.mlp_chunk;
  TrainingPlans plans;
  plans.step = plan_step(describe_step(config), policy, machine);
  plans.evaluation = plan_evaluation(config.model, config.dtype, config.batch, config.seq,
                                     {.loss = config.loss_chunk, .mlp = config.mlp_chunk});
  return plans;
}

std::vector<uint64_t> step_fingerprints(const TrainingConfig& config) {
  return step_fingerprints(describe_step(config));
}

Lifetimes record_step(const TrainingConfig& config, const StepPlans& plans,
                      const Machine& machine) {
  return record_step(describe_step(config), plans, machine);
}

RehearsedStep rehearse_step(const TrainingConfig& config, const StepPlans& plans,
                            const Machine& machine, const AskedOfRehearsal& asked) {
  return rehearse_step(describe_step(config), plans, machine, asked);
}

std::optional<Layout> lay_out_step(const TrainingConfig& config, const StepPlans& plans,
                                   const Machine& machine) {
  return lay_out_step(describe_step(config), plans, machine);
}

PlannedRun plan_run(const TrainingConfig& config, const RunRequest& request,
                    const Machine& machine) {
  PlannedRun run{.config = config, .plans = make_plans(config, request.policy, machine)};
  StepPlans& plans = run.plans;
  if (request.plan) {
    check_chunks(*request.plan, plans.step, config);
    check_setting(!offloads_to_disk(*request.plan) || !request.spill_directory.empty(),
                  {"plan", "offload-to"},
                  "the plan offloads to a disk; name the directory, as disk:DIRECTORY");
    plans.step = *request.plan;
  }
  plans.graph = request.graph;
  plans.spill_directory = request.spill_directory;
  plans.layout = lay_out_step(config, plans, machine);
  run.foretold = rehearse_training(config, run.plans, machine, request.sample);
  plans.host_bytes = run.foretold.host.peak;
  plans.disk_bytes = run.foretold.disk.peak;
  run.budget = run.foretold.memory.peak;
  if (request.limit) {
    if (request.limit->budget) run.budget = request.limit->budget;
    run.refusal = refuse(run, request, machine);
  }
  return run;
}

std::string place_of_peak(const PlannedRun& run, const Machine& machine) {
  TrainingConfig config = run.config;
  config.accumulate = std::min(config.accumulate, distinct_micro_batches);
  const RehearsedStep step = rehearse_step(config, run.plans, machine, {.survey = true});
  if (step.report.memory.peak < run.foretold.memory.peak) return "an evaluation or a text sample";
  return description(*step.survey.peak());
}

Report rehearse_training(const TrainingConfig& config, const TrainingPlans& plans,
                         const Machine& machine, const SampleLength& sample) {
  // Further micro-batches repeat the middle one.  Its time is the difference from a rehearsal with
  // one micro-batch fewer.
  const int64_t rehearsed = std::min(config.accumulate, distinct_micro_batches);
  const int64_t left_out = config.accumulate - rehearsed;
  double seconds[2] = {};
  Report report;
  MemoryStats host, disk;
  for (const int64_t fewer : {1, 0}) {
    if (fewer && !left_out) continue;
    TrainingConfig some = config;
    some.accumulate = rehearsed - fewer;
    report = rehearse(machine, [&](MetaStream& stream) {
      Trainer trainer(some, plans, stream);
      trainer.initialise();
      const double start = stream.now();
      trainer.rehearse_step();
      seconds[fewer] = stream.now() - start;
      trainer.evaluator().rehearse_mean_loss();
      if (sample.drawn > 0) {
        Generator(trainer.model(), stream).rehearse(sample.prompt, sample.drawn);
      }
      host = trainer.host_memory();
      disk = trainer.disk();
    });
  }
  report.host = host;
  report.disk = disk;
  report.seconds = seconds[0] + static_cast<double>(left_out) * (seconds[0] - seconds[1]);
  return report;
}

}  // namespace spool
