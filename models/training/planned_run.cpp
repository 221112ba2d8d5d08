#include "spool/models/training/planned_run.h"

#include "spool/models/steps/chunks/parts_choice.h"
#include "spool/models/steps/exchange/buckets_choice.h"
#include "spool/models/steps/exchange/row_pieces.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/models/training/calibration_samples.h"
#include "spool/models/training/run_options.h"
#include "spool/models/training/trainer.h"
#include "spool/planner/plan_file.h"
#include "spool/planner/sharding/cut_words.h"
#include "spool/planner/sharding/shard_choice.h"
#include "spool/runtime/files/file.h"

namespace spool {

namespace {

// A plan for another tape is left to that tape, which refuses it with its own message.
bool is_for_another_tape(const Plan& plan, const TrainingConfig& config) {
  return !plan.fingerprints.empty() &&
         std::vector<uint64_t>(plan.fingerprints) != step_fingerprints(describe_step(config));
}

// Chunks are what changes results, so a run keeps its own, whatever its plan.
void check_chunks(const Plan& given, const Plan& own, const StepChunks& chunks) {
  const bool same = are_in_same_chunks(given.chunks, own.chunks);
  const Plan in_own_parts = with_parts(given, parts_in(chunks.nodes));
  check_setting(same || !are_in_same_chunks(in_own_parts.chunks, own.chunks), {"plan"},
                "the plan cuts the backward of attention into other parts than this run, "
                "which keeps those that were chosen for its first memory; give the plan it was "
                "begun with, or none");
  check_setting(same, {"plan", "chunk-loss"},
                "the plan cuts the loss into chunks of another size than this run's, which is ",
                chunks.loss_rows, " rows; give the number of rows it was made with");
  if (nodes_in_chunks(given) == nodes_in_chunks(own)) return;
  constexpr const char* differs =
      "the plan runs other nodes in chunks, or in chunks of another size, than this run, whose ";
  check_setting(chunks.nodes.empty(), {"plan"}, differs,
                "chunks were chosen for a budget and are part of its configuration; give the plan "
                "it was begun with, or none");
  fail_setting(ErrorKind::invalid, {"plan", "chunk-mlp"}, differs, "MLPs have chunks of ",
               chunks.mlp_rows, " rows; give the number of rows it was made with");
}

// Takes the nodes in chunks from the request's plan, or none if the search chooses them; unchanged
// if they are set.
StepChunks settled_chunks(const TrainingConfig& config, const StepRequest& request,
                          const Machine& machine) {
  StepChunks chunks = config.chunks;
  if (config.shards) return chunks;
  const bool has_plan = request.plan && !is_for_another_tape(*request.plan, config);
  if (request.choose->regions && chunks.mlp_rows == 0) {
    chunks.nodes = has_plan ? nodes_in_chunks(*request.plan) : std::vector<NodesInChunks>{};
  }
  if (!has_plan || !parts_in(chunks.nodes).empty()) return chunks;
  const bool on_cuda = std::holds_alternative<CudaArchitecture>(machine.architecture);
  read_program(config, [&](const Program& program) {
    for (const NodesInChunks& one : parts_of(program, *request.plan)) {
      if (on_cuda || one.chunks > 1) chunks.nodes.push_back(one);  // of which a cpu makes nothing
    }
  });
  return chunks;
}

void check_given(const Plan& given, const TrainingConfig& config, const StepRequest& request,
                 const Machine& machine) {
  if (!is_for_another_tape(given, config)) {
    const Plan own = plan_step(describe_step(config), *request.policy, machine);
    check_chunks(given, own, config.chunks);
  }
  check_setting(!offloads_to_disk(given) || !request.spill_directory.empty(),
                {"plan", "offload-to"},
                "the plan offloads to a disk; name the directory, as disk:DIRECTORY");
}

// With measured kernels, a search finds other plans, the smallest of which may need a little less.
bool may_fit(const PlannedRun& run) {
  if (!run.refusal) return true;
  const size_t peak = run.foretold.memory.peak;
  return run.limit < peak && peak - run.limit <= peak / 10;
}

bool is_plan(const std::filesystem::path& file) {
  try {
    (void)load_plan(file);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A stream to rehearse what a rank does.
MetaStream stream_of_rank(const TrainingConfig& config) {
  Machine machine;
  machine.mesh.ranks = config.shards ? config.ranks : 0;
  return MetaStream(machine);
}

size_t bucket_bytes(const TrainingConfig& config) {
  MetaStream stream = stream_of_rank(config);
  const std::unique_ptr<StepModel> model = make_step_model(describe_step(config), stream);
  const RowPieces pieces(model->parameters().trainable(), config.replicas());
  const int64_t elements = pieces.piece_elements() * pieces.ranks();
  return static_cast<size_t>(elements) * size_of(accumulator(config.dtype));
}

std::vector<std::string> cuts_of(const TrainingConfig& config) {
  if (!config.shards) return {};
  MetaStream stream{Machine{}};
  const std::unique_ptr<StepModel> model = describe_step(config).make_model(stream);
  const RecordedLoss loss = record_loss(*model, stream);
  return cuts_in_words(loss.program, config.shards->choose(loss), config.shards->mesh);
}

ExchangeForetold foretell_exchange(const PlannedRun& run, const Machine& machine) {
  const TrainingConfig& config = run.config;
  ExchangeForetold foretold =
      exchanges_of(rehearse_step(describe_step(config), run.plans, machine, {.allocations = true}));
  foretold.ranks = config.ranks;
  foretold.ranks_of_machine = machine.mesh.ranks_of_machine;
  foretold.link = machine.mesh.link;
  foretold.zero = config.zero;
  foretold.micro_batches = config.accumulate / config.replicas();
  foretold.replicas = config.replicas();
  foretold.cuts = cuts_of(config);
  foretold.buckets_in_flight = buckets_in_flight(run.plans.step);
  foretold.bucket_bytes = bucket_bytes(config);
  return foretold;
}

}  // namespace

StepDescription describe_step(const TrainingConfig& config, const Plan& evaluation) {
  return {.make_model =
              [config, evaluation](Stream& stream) {
                return std::make_unique<TrainedModel>(config, evaluation, stream);
              },
          .config = config.step(),
          .shards = config.shards};
}

StepPlans make_plans(const TrainingConfig& config, const Policy& policy, const Machine& machine) {
  return {.step = plan_step(describe_step(config), with_chunks(policy, config.chunks_of_tape()),
                            machine)};
}

RunRequest request_of(const RunOptions& o, const Machine& machine, std::optional<Plan> plan) {
  const auto is_given = [&](const char* key) { return o.given.contains(key); };
  const bool has_host = std::holds_alternative<CudaArchitecture>(machine.architecture);
  const auto sharers = static_cast<size_t>(std::max(o.ranks_here, 1));
  const bool has_homes = o.policy.parameters_on_device.has_value();
  const size_t all = device_memory({DeviceType::cpu}) / sharers;
  // What lives on the host by hand takes what it needs; a machine that is not here has no limit.
  const bool takes_all = has_homes && !is_given("host-memory");
  const size_t needed = o.host_memory ? MetaStream::unlimited : all;
  const size_t host = takes_all ? needed : o.host_memory.value_or(all / 2);
  Choices choose{.placement = !is_given("recompute") && !is_given("offload"),
                 .loss_chunk = !o.resume && !is_given("chunk-loss") && !o.training.shards,
                 .regions = !o.resume && !is_given("chunk-mlp") && !o.training.shards,
                 .state_share = has_host && host > 0 && !is_given("optimizer-state") && !has_homes,
                 .host_bytes = host};
  const bool may_offload =
      o.policy.target == OffloadTarget::disk || is_given("offload-to") || (has_host && host > 0);
  if (may_offload) choose.offload_to = o.policy.target;
  RunRequest request{.steps = {.policy = o.policy,
                               .plan = std::move(plan),
                               .choose = choose,
                               .graph = o.graph,
                               .spill_directory = o.spill_directory},
                     .batch_is_fixed = o.resume,
                     .split_is_chosen = o.tokens_per_step && !o.resume,
                     .compares = true};
  if (is_given("host-memory")) request.host_limit = o.host_memory;
  limit_memory(request, o.device, o.memory, machine);
  if (has_host) {
    limit_to_least(request, o.least_memory);  // ranks have a GPU each
  } else {
    divide_memory(request, o.training.ranks);
  }
  return request;
}

void limit_to_least(RunRequest& request, size_t bytes) {
  if (bytes == 0) return;
  request.capacity = std::min(request.capacity, bytes);
  request.steps.free = std::min(request.steps.free, request.capacity);
  request.steps.budget = std::min(request.steps.budget, request.capacity);
}

void divide_memory(RunRequest& request, int ranks) {
  if (ranks < 2) return;
  const auto count = static_cast<size_t>(ranks);
  request.ranks = count;
  request.capacity /= count;
  request.steps.free = std::min(request.steps.free / count, request.capacity);
  request.steps.budget = std::min(request.steps.budget, request.capacity);
}

CalibrationRequest calibration_of(const RunOptions& o, const std::optional<Plan>& given) {
  const StepRequest steps{.policy = with_chunks(o.policy, o.training.chunks_of_tape()),
                          .plan = given,
                          .budget = o.memory,
                          .free = free_memory(o.device),
                          .spill_directory = o.spill_directory};
  CalibrationRequest request =
      calibration_of(describe_step(o.training), steps, o.device, o.threads);
  request.ranks = o.training.ranks;
  add_samples(request, o.training, steps);
  request.is_of_use = [o, given](const Machine& machine) {
    if (o.shard == name(ShardPolicy::automatic)) return true;  // one of many may fit
    RunRequest of_run = request_of(o, machine, given);
    of_run.compares = false;
    of_run.steps.buckets_in_flight = fewest_buckets_in_flight;
    return may_fit(RunPlanner(o.training, of_run, SampleLength{}, machine).plan());
  };
  return request;
}

RunPlanner::RunPlanner(const TrainingConfig& config, const RunRequest& given,
                       const SampleLength& sample, const Machine& machine)
    : config_(config), machine_(machine) {
  RunRequest request = given;
  StepRequest& steps = request.steps;
  if (!steps.choose) steps.choose.emplace();
  config_.chunks = settled_chunks(config, steps, machine);
  steps.policy = with_chunks(steps.given_policy(), config_.chunks_of_tape());
  if (steps.plan) check_given(*steps.plan, config_, steps, machine);
  rest_ = std::make_shared<RestOfRun>(config_, sample, machine);
  steps_.emplace(describe_run(rest_), std::move(request), machine);
}

PlannedRun RunPlanner::of_run(PlannedSteps planned) const {
  PlannedRun run{std::move(planned), config_};
  if (!config_.shards) run.config.chunks = run.chunks;
  run.config.evaluation = rest_->evaluation_rows(run.plans.step, run.budget, run.budget);
  return run;
}

PlannedRun RunPlanner::plan() {
  PlannedRun run = plan_only();
  compare(run);
  return run;
}

PlannedRun RunPlanner::plan_only() {
  PlannedRun run = of_run(steps_->plan_only());
  if (run.config.ranks > 0 && !run.refusal) run.exchange = foretell_exchange(run, machine_);
  return run;
}

void tell_rounding(PlannedRun& run, const RunOptions& o) {
  const bool is_given = o.resume || o.tokens_per_step || o.given.contains("accumulate");
  if (!run.exchange || is_given) return;
  const int64_t usual = usual_micro_batches(o);
  if (usual != run.config.accumulate) run.exchange->rounded_from = usual;
}

uint64_t fingerprint_of_model(TrainingConfig config) {
  config.shards.reset();
  return step_fingerprints(describe_step(config)).back();
}

void read_program(const TrainingConfig& config, const std::function<void(const Program&)>& read) {
  MetaStream stream = stream_of_rank(config);
  const std::unique_ptr<StepModel> model = make_step_model(describe_step(config), stream);
  Tape tape(stream, {.backward_follows = true, .random = Tensor({Shape{4}, DType::i32}, stream)});
  model->loss(tape);
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
                    .made_for = PlannedFor{.loss_rows = run.chunks.loss_rows,
                                           .mlp_rows = run.chunks.mlp_rows,
                                           .budget = run.budget,
                                           .peak = run.foretold.memory.peak,
                                           .machine = machine.name}};
  stored.plan.fingerprints = step_fingerprints(describe_step(run.config));
  check_plan_file(file);
  save_plan(file, stored);
}

}  // namespace spool
