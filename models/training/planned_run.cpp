#include "spool/models/training/planned_run.h"

#include <algorithm>

#include "spool/models/inference/generator.h"
#include "spool/models/training/budget.h"
#include "spool/models/training/run_search.h"
#include "spool/models/training/trainer.h"
#include "spool/planner/plan_file.h"
#include "spool/runtime/files/file.h"

namespace spool {

namespace {

// Only chunks change results, so a run has its own, whatever its plan.
void check_chunks(const Plan& given, const Plan& own, const TrainingConfig& config) {
  check_setting(given.chunks == own.chunks, {"plan", "chunk-loss"},
                "the plan cuts the loss into chunks of another size than this run's, which is ",
                config.loss_chunk, " rows; give the number of rows it was made with");
  if (nodes_in_chunks(given) == nodes_in_chunks(own)) return;
  constexpr const char* differs =
      "the plan runs other nodes in chunks, or in chunks of another size, than this run, whose ";
  check_setting(config.in_chunks.empty(), {"plan"}, differs,
                "chunks were chosen for a budget and are part of its configuration; give the plan "
                "it was begun with, or none");
  fail_setting(ErrorKind::invalid, {"plan", "chunk-mlp"}, differs, "MLPs have chunks of ",
               config.mlp_chunk, " rows; give the number of rows it was made with");
}

// A plan for another tape is refused by that tape, in words of its own.
bool is_for_another_tape(const Plan& plan, const TrainingConfig& config) {
  return !plan.fingerprints.empty() &&
         std::vector<uint64_t>(plan.fingerprints) != step_fingerprints(config);
}

PlannedRun plan_as_given(const TrainingConfig& config, const RunRequest& request,
                         const Machine& machine) {
  PlannedRun run{.config = config, .plans = make_plans(config, request.policy, machine)};
  StepPlans& plans = run.plans;
  if (request.plan) {
    check_given(*request.plan, plans.step, request, config);
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
    Generator(trainer.model(), stream, sample.prompt + sample.drawn)
        .rehearse(sample.prompt, sample.drawn);
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
  const size_t bytes = std::min(limit.budget ? limit.budget : limit.free, limit.most);
  PlannedRun run = RunSearch(config, request, machine).plan(bytes);
  if (limit.budget) run.budget = limit.budget;
  return run;
}

}  // namespace

void check_given(const Plan& given, const Plan& own, const RunRequest& request,
                 const TrainingConfig& config) {
  if (!is_for_another_tape(given, config)) check_chunks(given, own, config);
  check_setting(!offloads_to_disk(given) || !request.spill_directory.empty(),
                {"plan", "offload-to"},
                "the plan offloads to a disk; name the directory, as disk:DIRECTORY");
}

TrainingConfig with_nodes_in_chunks(TrainingConfig config, const RunRequest& request) {
  if (!request.choose.regions || config.mlp_chunk > 0) return config;
  config.in_chunks.clear();
  if (request.plan && !is_for_another_tape(*request.plan, config)) {
    config.in_chunks = nodes_in_chunks(*request.plan);
  }
  return config;
}

StepDescription describe_step(const TrainingConfig& config, const Plan& evaluation) {
  return {.make_model =
              [config, evaluation](Stream& stream) {
                return std::make_unique<TrainedModel>(config, evaluation, stream);
              },
          .config = config.step()};
}

Policy with_chunks_of(const TrainingConfig& config, Policy policy) {
  policy.loss_chunk = config.loss_chunk;
  policy.mlp_chunk = config.mlp_chunk;
  policy.in_chunks = config.in_chunks;
  return policy;
}

StepRequest step_request(const TrainingConfig& config, const RunRequest& request) {
  StepRequest of_steps{.policy = with_chunks_of(config, request.policy),
                       .plan = request.plan,
                       .choose = request.choose,
                       .graph = request.graph,
                       .spill_directory = request.spill_directory};
  if (request.limit) {
    of_steps.budget = request.limit->budget;
    of_steps.free = request.limit->free;
  }
  return of_steps;
}

TrainingPlans make_plans(const TrainingConfig& config, Policy policy, const Machine& machine) {
  TrainingPlans plans;
  plans.step = plan_step(describe_step(config), with_chunks_of(config, std::move(policy)), machine);
  plans.evaluation = plan_evaluation(config.model, config.dtype, config.batch, config.seq,
                                     config.evaluation_rows());
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

size_t limit_of(const PlannedRun& run) { return run.search ? run.limit : run.budget; }

bool is_limited_by_free_memory(const PlannedRun& run) { return run.search && !run.has_budget; }

PlannedRun plan_run(const TrainingConfig& any_config, const RunRequest& request,
                    const Machine& machine) {
  const TrainingConfig config = with_nodes_in_chunks(any_config, request);
  const auto& choose = request.choose;
  const bool may_search = request.limit && !request.plan && choose.any();
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
  if (!request.limit) return run;
  run.has_budget = request.limit->budget > 0;
  run.besides = request.limit->besides;
  run.refusal = refuse(run, request, machine);
  return run;
}

std::string place_of_peak(const PlannedRun& run, const Machine& machine) {
  TrainingConfig config = run.config;
  config.accumulate = std::min(config.accumulate, distinct_micro_batches);
  const RehearsedStep step = rehearse_step(config, run.plans, machine, {.survey = true});
  if (step.report.memory.peak < run.foretold.memory.peak) return "an evaluation or a text sample";
  return description(*step.survey.peak());
}

void read_program(const TrainingConfig& config, const std::function<void(const Program&)>& read) {
  MetaStream stream{Machine{}};
  TrainedModel model(config, Plan{}, stream);
  Tape tape(stream, {.backward_follows = true, .random = Tensor({Shape{4}, DType::i32}, stream)});
  model.loss(tape);
  read(tape.program());
}

std::vector<LayerGroup> explain(const PlannedRun& run) {
  std::vector<LayerGroup> groups;
  read_program(run.config,
               [&](const Program& program) { groups = explain(program, run.plans.step); });
  return groups;
}

void check_plan_file(const std::filesystem::path& file) {
  check_writable(file, {"save-plan"});
  check_file_setting(!path_exists(file) || is_plan(file), file, {"save-plan"},
                     "exists already and is not a plan; choose another name");
}

void save_step_plan(const std::filesystem::path& file, const PlannedRun& run,
                    const Machine& machine) {
  StoredPlan stored{.plan = run.plans.step,
                    .made_for = PlannedFor{.loss_rows = run.config.loss_chunk,
                                           .mlp_rows = run.config.mlp_chunk,
                                           .budget = run.budget,
                                           .peak = run.foretold.memory.peak,
                                           .machine = machine.name}};
  stored.plan.fingerprints = step_fingerprints(run.config);
  check_plan_file(file);
  save_plan(file, stored);
}

Report rehearse_training(const TrainingConfig& config, const TrainingPlans& plans,
                         const Machine& machine, const SampleLength& sample) {
  Report report = foretell_step(describe_step(config), plans, machine);
  const MemoryStats others = rehearse_others(config, plans, machine, sample);
  if (others.peak > report.memory.peak) report.memory = others;
  return report;
}

MemoryStats rehearse_others(const TrainingConfig& config, const TrainingPlans& plans,
                            const Machine& machine, const SampleLength& sample) {
  const Report report = rehearse(machine, [&](MetaStream& stream) {
    Trainer trainer(config, plans, stream);
    trainer.initialise();
    rehearse_evaluation_and_sample(trainer, stream, sample);
  });
  return report.memory;
}

}  // namespace spool
