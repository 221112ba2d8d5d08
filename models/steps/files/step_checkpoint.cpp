#include "spool/models/steps/files/step_checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/models/formats/checkpoint_mark.h"
#include "spool/models/formats/named_parameters.h"
#include "spool/models/formats/parameter_file.h"
#include "spool/models/formats/run_directory.h"
#include "spool/models/steps/chunks/parts_choice.h"
#include "spool/models/steps/exchange/gradient_sums.h"
#include "spool/models/steps/files/state_tensors.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/machines/matmul_table.h"
#include "spool/planner/plan_json.h"
#include "spool/runtime/files/json.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/version.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int format_version = 1;
constexpr const char *parameter_file = "parameters.safetensors", *step_file = "step.json";

// The tape that the steps were of, and the chunks of its ops.
StoredPlan plan_of(const StepCheckpoint& checkpoint) {
  StoredPlan stored{.made_for = PlannedFor{.loss_rows = checkpoint.chunks.loss_rows}};
  stored.plan.chunks = checkpoint.chunks_of_nodes;
  stored.plan.fingerprints = checkpoint.fingerprints;
  return stored;
}

// All but the step and the order of sums over ranks.
json determining(const StepCheckpoint& checkpoint) {
  json all{{"seed", checkpoint.seed},
           {"accumulate", checkpoint.accumulate},
           {"nodes_in_chunks", to_json(checkpoint.chunks.nodes)},
           {"tape", to_json(plan_of(checkpoint))}};
  if (!checkpoint.products.places.empty()) all["products"] = to_json(checkpoint.products);
  if (checkpoint.has_free_chunks) all["free_chunks"] = true;
  return all;
}

CheckpointMark mark_of(const StepCheckpoint& checkpoint) {
  Hash hash;
  hash.add(determining(checkpoint).dump());
  return {.step = checkpoint.step, .run = hash_in_words(hash.state())};
}

OptimizerFile file_of(Optimizer& optimizer, const Parameters& parameters) {
  return {optimizer, parameters,
          [&](const std::vector<TensorContents>& parallel, std::string_view prefix) {
            return named_tensors(parameters, parallel, prefix);
          }};
}

// Whether a tensor of the state is of a parameter that is not trained, as older files have them.
bool is_of_frozen(std::string_view tensor, const Parameters& parameters) {
  const std::string_view name = tensor.substr(tensor.find('.') + 1);
  return std::ranges::any_of(parameters,
                             [&](const Parameter* p) { return p->name == name && !p->trainable; });
}

StepCheckpoint parse(const JsonField& file) {
  const JsonField version = file.member("format_version");
  version.expect(version.value() == format_version, excerpt(version.value()),
                 " cannot be read; this library reads ", format_version);
  const StoredPlan tape = plan_from_json(file.member("tape"));
  StepCheckpoint checkpoint{.step = file.member("step").integer<int64_t>(0),
                            .seed = file.member("seed").integer<uint64_t>(),
                            .accumulate = file.member("accumulate").integer<int64_t>(1),
                            .chunks_of_nodes = tape.plan.chunks,
                            .fingerprints = tape.plan.fingerprints};
  checkpoint.chunks.loss_rows = tape.made_for ? tape.made_for->loss_rows : 0;
  checkpoint.chunks.nodes = nodes_in_chunks_from_json(file.member("nodes_in_chunks"));
  if (const auto products = file.find("products")) {
    checkpoint.products = matmul_algorithms_from_json(*products);
  }
  checkpoint.has_free_chunks = file.find("free_chunks").has_value();
  const auto sums = file.find("gradient_sums");  // none: written before there were ranks
  checkpoint.summed_ranks = sums ? sums_from_json(*sums) : checkpoint.accumulate > 1 ? 1 : 0;
  const JsonField run = file.member("run");
  run.expect(run.string() == mark_of(checkpoint).run,
             "does not belong to the other fields; one was changed after the run wrote it");
  return checkpoint;
}

// Of the model's own tape, on any ranks.
std::vector<uint64_t> model_fingerprints(StepDescription step) {
  step.shards.reset();
  return step_fingerprints(step);
}

void check_same_tape(const StepCheckpoint& checkpoint, const StepDescription& step) {
  const std::vector<uint64_t> own = model_fingerprints(step);
  const auto differ = std::ranges::mismatch(own, checkpoint.fingerprints).in1;
  check_file(own == checkpoint.fingerprints, checkpoint.directory / step_file,
             "is of another model, or of batches of another shape: the tapes differ at node ",
             differ - own.begin(), ", and have ", checkpoint.fingerprints.size(), " and ",
             own.size(), " nodes; make the model as the run did, or begin a new run from ",
             parameter_file);
}

}  // namespace

StepCheckpoint describe_checkpoint(int64_t step, const StepDescription& described,
                                   const PlannedSteps& planned, const StepCheckpoint* resumed) {
  if (resumed && !keeps_chunks(*resumed, described)) {
    StepCheckpoint same = *resumed;
    if (step != same.step) same.summed_ranks = summed_ranks(described.config);
    same.step = step;
    return same;
  }
  if (described.shards) {
    return {.step = step,
            .seed = described.config.seed,
            .accumulate = described.config.accumulate,
            .summed_ranks = summed_ranks(described.config),
            .fingerprints = model_fingerprints(described),
            .has_free_chunks = true};
  }
  std::vector<NodesInChunks> nodes = nodes_in_chunks(planned.plans.step);
  std::ranges::copy(parts_in(planned.chunks.nodes), std::back_inserter(nodes));
  return {.step = step,
          .seed = described.config.seed,
          .accumulate = described.config.accumulate,
          .summed_ranks = summed_ranks(described.config),
          .chunks = {.loss_rows = planned.chunks.loss_rows, .nodes = std::move(nodes)},
          .chunks_of_nodes = planned.plans.step.chunks,
          .fingerprints = model_fingerprints(described)};
}

bool keeps_chunks(const StepCheckpoint& checkpoint, const StepDescription& step) {
  return !checkpoint.has_free_chunks && !step.shards;
}

void save_checkpoint(const fs::path& directory, const StepCheckpoint& checkpoint, StepModel& model,
                     Optimizer& optimizer) {
  const CheckpointMark mark = mark_of(checkpoint);
  save_parameters(directory / parameter_file, model.parameters(), metadata_of(mark));
  file_of(optimizer, model.parameters()).save(directory, metadata_of(mark));
  json file = determining(checkpoint);
  file["format_version"] = format_version;
  file["spool"] = sentence(version(), " ", commit());
  file["step"] = checkpoint.step;
  file["gradient_sums"] = sums_to_json(checkpoint.summed_ranks);
  file["run"] = mark.run;
  write_text_file_atomically(directory / step_file, file.dump(2) + "\n");
}

StepCheckpoint find_checkpoint(const fs::path& run, const StepDescription& step) {
  const std::optional<fs::path> latest = latest_checkpoint(run);
  check_file(latest.has_value(), run, "has no checkpoint to go on from; begin a run instead");
  const fs::path file = *latest / step_file;
  check_file(path_exists(file), *latest, "is no checkpoint of a StepRunner: it has no ", step_file);
  StepCheckpoint checkpoint = parse(read_json(file));
  checkpoint.directory = *latest;
  check_belong_together(
      *latest, {MarkedFile{file, mark_of(checkpoint)}, marked_file(*latest / parameter_file),
                marked_file(*latest / OptimizerFile::name)});
  check_same_tape(checkpoint, step);
  const StepConfig& config = step.config;
  check_file(checkpoint.accumulate == config.accumulate && checkpoint.seed == config.seed, file,
             "is of a run of ", checkpoint.accumulate, " micro-batches a step and seed ",
             checkpoint.seed, ", not of ", config.accumulate, " and ", config.seed,
             "; go on with those of the run");
  return checkpoint;
}

StepRequest with_chunks_of(const StepCheckpoint& checkpoint, StepRequest request) {
  if (request.plan) return request;
  Choices choose = request.choices();
  choose.loss_chunk = choose.regions = false;
  request.choose = choose;
  request.policy = with_chunks(request.given_policy(), checkpoint.chunks);
  return request;
}

void check_chunks(const StepCheckpoint& checkpoint, Plan plan, const StepChunks& planned) {
  std::vector<NodesInChunks> regions = checkpoint.chunks.nodes;
  std::erase_if(regions, [](const NodesInChunks& n) { return n.last < 0; });
  if (parts_in(checkpoint.chunks.nodes).empty()) {
    std::vector<NodesInChunks> parts = parts_in(planned.nodes);
    for (NodesInChunks& one : parts) one.chunks = 1;
    plan = with_parts(std::move(plan), parts);
  }
  check_file(are_in_same_chunks(plan.chunks, checkpoint.chunks_of_nodes) &&
                 nodes_in_chunks(plan) == regions,
             checkpoint.directory / step_file,
             "is of a run whose ops run in other chunks than by this plan, which changes the "
             "order of sums; give the plan that the run began with, or none");
}

void load_checkpoint(const StepCheckpoint& checkpoint, StepModel& model, Optimizer& optimizer) {
  load_parameters(checkpoint.directory / parameter_file, model.parameters());
  const Parameters& parameters = model.parameters();
  file_of(optimizer, parameters).load(checkpoint.directory, [&](std::string_view tensor) {
    return is_of_frozen(tensor, parameters);
  });
  optimizer.set_steps(checkpoint.step);
}

}  // namespace spool
