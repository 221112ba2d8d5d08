#include "spool/models/steps/sharding/step_shards.h"

#include <map>
#include <mutex>

#include "spool/autograd/fingerprint.h"
#include "spool/autograd/sharding/sharded_model.h"
#include "spool/planner/sharding/shard_choice.h"
#include "spool/planner/sharding/shards_file.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

uint64_t fingerprint_of(const Program& program) {
  const NodeId nodes = program.nodes.next_id();
  return nodes > 0 ? fingerprints(program)[nodes - 1] : empty_fingerprint;
}

// What was chosen for a program with what is stored already; rehearsals and ranks that are threads
// record it again and again.
class ChosenShards {
 public:
  // By the fingerprint of a program, and what is stored already.
  using Known = std::map<std::pair<uint64_t, std::map<ValueId, Sharding>>, Assignment>;
  // `known`: of these programs.
  ChosenShards(MeshAxes mesh, std::string how, Known known = {})
      : mesh_(std::move(mesh)), how_(std::move(how)), known_(std::move(known)) {}

  Assignment of(const RecordedLoss& recorded) {
    const Program& program = recorded.program;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [known, is_new] = known_.try_emplace({fingerprint_of(program), recorded.stored});
    if (is_new) known->second = choose(recorded);
    return known->second;
  }

 private:
  // A file is of the loss alone; what else a model computes is cut as its parameters are, in a way
  // that does not depend on how many rows it has, as plans of evaluations do not.
  Assignment choose(const RecordedLoss& recorded) const {
    const auto policy = spool::parse<ShardPolicy>(how_);
    if (!policy && recorded.stored.empty()) return load_shards(how_, recorded.program, mesh_);
    const MeshMachine same{.machine = {}, .links = std::vector<Link>(mesh_.size())};
    const bool is_given = policy && (policy != ShardPolicy::automatic || recorded.stored.empty());
    return choose_shards(recorded.program, mesh_, same, is_given ? *policy : ShardPolicy::megatron,
                         recorded.stored)
        .how;
  }

  const MeshAxes mesh_;
  const std::string how_;
  std::mutex mutex_ = {};
  Known known_;
};

Assignment whole_ops(const RecordedLoss& loss) {
  Assignment how;
  for (const Node& node : loss.program.nodes) {
    how.nodes.push_back({.inputs = std::vector<Sharding>(node.inputs.size()),
                         .outputs = std::vector<Sharding>(node.outputs.size())});
  }
  for (const ValueId v : written_inputs(loss.program)) how.given[v] = {};
  return how;
}

}  // namespace

StepShards whole_micro_batches() { return {.mesh = {}, .choose = whole_ops}; }

namespace {

StepShards shards_by(const MeshAxes& mesh, std::shared_ptr<ChosenShards> chosen) {
  return {.mesh = mesh, .choose = [chosen = std::move(chosen)](const RecordedLoss& loss) {
            return chosen->of(loss);
          }};
}

// The loss of the steps, and the stream that it is recorded on.
struct RecordedStep {
  explicit RecordedStep(const StepDescription& step) : model(step.make_model(stream)) {}

  MetaStream stream{Machine{}};
  std::unique_ptr<StepModel> model;
  RecordedLoss loss = record_loss(*model, stream);
};

}  // namespace

StepShards shards(const std::string& mesh, const Program& program, const Assignment& how) {
  const MeshAxes axes = parse_mesh(mesh);
  ChosenShards::Known known{{{fingerprint_of(program), {}}, how}};
  return shards_by(axes, std::make_shared<ChosenShards>(axes, "auto", std::move(known)));
}

StepShards shards(const std::string& mesh, const std::string& how) {
  const MeshAxes axes = parse_mesh(mesh);
  check_setting(spool::parse<ShardPolicy>(how) || path_exists(how), {"shard"}, "'", how,
                "' is no way to cut ops: give ", list_of<ShardPolicy>(),
                ", or a file that has one, and none is there of this name");
  return shards_by(axes, std::make_shared<ChosenShards>(axes, how));
}

void save_shards(const std::string& path, const StepDescription& step) {
  check(step.shards.has_value(), "save_shards: ", path, ": these steps are not cut over a mesh");
  const RecordedStep recorded(step);
  save_shards(path, recorded.loss.program, step.shards->mesh, step.shards->choose(recorded.loss));
}

std::string shards_text(const StepDescription& step) {
  const RecordedStep recorded(step);
  return shards_text(recorded.loss.program, step.shards->mesh, step.shards->choose(recorded.loss));
}

StepShards parse_shards(const std::string& text, const std::string& name,
                        const StepDescription& step, const std::string& mesh) {
  const RecordedStep recorded(step);
  const Program& program = recorded.loss.program;
  return shards(mesh, program, parse_shards(text, name, program, parse_mesh(mesh)));
}

}  // namespace spool
