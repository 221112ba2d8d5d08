#include "spool/models/training/planned_run.h"

#include <algorithm>
#include <array>

#include "spool/autograd/chunks/cut.h"
#include "spool/autograd/fingerprint.h"
#include "spool/models/inference/generator.h"
#include "spool/models/training/budget.h"
#include "spool/models/training/run_search.h"
#include "spool/models/training/trainer.h"
#include "spool/planner/plan_file.h"
#include "spool/runtime/integer.h"

namespace spool {

namespace {

// Only chunks change results, so a run has its own, whatever its plan.
void check_chunks(const Plan& given, const Plan& own, const TrainingConfig& config) {
  check_setting(given.chunks == own.chunks, {"plan", "chunk-loss"},
                "the plan cuts the loss into chunks of another size than this run's, which is ",
                config.loss_chunk,
                " rows (0: all rows); leave the number of rows out, or give the ",
                "one that the plan was made with");
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
                config.mlp_chunk, " rows (0: all rows); leave the number of rows out, or give the ",
                "one that the plan was made with");
}

// The least rows of a chunk that give the loss the plan's number of chunks; 0: it has one.
int64_t loss_chunk_of(const Plan& plan, const Program& program) {
  for (NodeId n = 0; n < plan.chunks.next_id(); ++n) {
    if (plan.chunks[n] <= 1) continue;
    Specs in;
    for (const ValueId v : program.nodes[n].inputs) in.push_back(program.values[v].spec);
    return ceil_div(program.nodes[n].op->max_chunks(in), int64_t{plan.chunks[n]});
  }
  return 0;
}

int64_t mlp_chunk_of(const Plan& plan, const Program& program) {
  for (const Region& r : plan.regions) {
    if (r.chunks > 1) return ceil_div(cut(program, r.first, r.last).extent, int64_t{r.chunks});
  }
  return 0;
}

// The configuration with those chunks of the request's plan that are not set by hand.
TrainingConfig with_chunks_of_plan(TrainingConfig config, const RunRequest& request) {
  const Plan& plan = *request.plan;
  const Program program = rehearse_tape(describe_step(config), {}, {}).program;
  // A plan for another tape is refused by that tape, in words of its own.
  if (!plan.fingerprints.empty() && plan.fingerprints != fingerprints(program)) return config;
  check_plan(plan);
  const auto exists = [&](const Region& r) { return program.nodes.contains(r.last); };
  if (plan.chunks.size() <= program.nodes.size() && std::ranges::all_of(plan.regions, exists)) {
    if (request.choose.loss_chunk) config.loss_chunk = loss_chunk_of(plan, program);
    if (request.choose.mlp_chunk) config.mlp_chunk = mlp_chunk_of(plan, program);
  }
  check_chunks(plan, make_plans(config).step, config);
  return config;
}

PlannedRun plan_as_given(const TrainingConfig& given, const RunRequest& request,
                         const Machine& machine) {
  const TrainingConfig config = request.plan ? with_chunks_of_plan(given, request) : given;
  PlannedRun run{.config = config, .plans = make_plans(config, request.policy, machine)};
  StepPlans& plans = run.plans;
  if (request.plan) {
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
  return run;
}

void rehearse_evaluation_and_sample(Trainer& trainer, Stream& stream, const SampleLength& sample) {
  trainer.evaluator().rehearse_mean_loss();
  if (sample.drawn > 0) {
    Generator(trainer.model(), stream).rehearse(sample.prompt, sample.drawn);
  }
}

bool is_plan(const std::filesystem::path& file) {
  try {
    (void)load_plan(file);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Within the budget, or within what is free.
PlannedRun search_plan(const TrainingConfig& config, const RunRequest& request,
                       const Machine& machine) {
  const MemoryLimit& limit = *request.limit;
  size_t bytes = limit.budget ? limit.budget : limit.free;
  if (limit.device) bytes = std::min(bytes, device_memory(*limit.device));
  PlannedRun run = RunSearch(config, request, machine).plan(bytes);
  if (limit.budget) run.budget = limit.budget;
  return run;
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
  const auto& choose = request.choose;
  const bool may_search = request.limit && !request.plan && (choose.placement || choose.loss_chunk);
  PlannedRun run;
  if (may_search && request.limit->budget) {
    run = search_plan(config, request, machine);
  } else {
    run = plan_as_given(config, request, machine);
    if (may_search && run.foretold.memory.peak > request.limit->free) {
      run = search_plan(config, request, machine);
    }
    if (request.limit && request.limit->budget) run.budget = request.limit->budget;
  }
  if (request.limit) run.refusal = refuse(run, request, machine);
  return run;
}

std::string place_of_peak(const PlannedRun& run, const Machine& machine) {
  TrainingConfig config = run.config;
  config.accumulate = std::min(config.accumulate, distinct_micro_batches);
  const RehearsedStep step = rehearse_step(config, run.plans, machine, {.survey = true});
  if (step.report.memory.peak < run.foretold.memory.peak) return "an evaluation or a text sample";
  return description(*step.survey.peak());
}

std::vector<LayerGroup> explain(const PlannedRun& run) {
  MetaStream stream{Machine{}};
  TrainedGpt2 model(run.config, Plan{}, stream);
  Tape tape(stream, {.backward_follows = true});
  model.loss(tape);
  return explain(tape.program(), run.plans.step);
}

void save_step_plan(const std::filesystem::path& file, const PlannedRun& run) {
  Plan plan = run.plans.step;
  plan.fingerprints = step_fingerprints(run.config);
  check_file_setting(!std::filesystem::exists(file) || is_plan(file), file, {"save-plan"},
                     "exists already and is not a plan; choose another name");
  save_plan(file, plan);
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
      rehearse_evaluation_and_sample(trainer, stream, sample);
      host = trainer.host_memory();
      disk = trainer.disk();
    });
  }
  report.host = host;
  report.disk = disk;
  report.seconds = seconds[0] + static_cast<double>(left_out) * (seconds[0] - seconds[1]);
  return report;
}

size_t rehearse_others(const TrainingConfig& config, const TrainingPlans& plans,
                       const Machine& machine, const SampleLength& sample) {
  const Report report = rehearse(machine, [&](MetaStream& stream) {
    Trainer trainer(config, plans, stream);
    trainer.initialise();
    rehearse_evaluation_and_sample(trainer, stream, sample);
  });
  return report.memory.peak;
}

}  // namespace spool
