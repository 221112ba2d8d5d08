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

// What was chosen for a program with what is stored already; rehearsals and ranks that are threads
// record it again and again.
class ChosenShards {
 public:
  ChosenShards(MeshAxes mesh, std::string how) : mesh_(std::move(mesh)), how_(std::move(how)) {}

  Assignment of(const RecordedLoss& recorded) {
    const Program& program = recorded.program;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto nodes = program.nodes.next_id();
    const uint64_t of_program = nodes > 0 ? fingerprints(program)[nodes - 1] : empty_fingerprint;
    const auto [known, is_new] = known_.try_emplace({of_program, recorded.stored});
    if (is_new) known->second = choose(recorded);
    return known->second;
  }

 private:
  // A file is of the loss alone; what else a model computes is cut as its parameters are.
  Assignment choose(const RecordedLoss& recorded) const {
    const auto policy = spool::parse<ShardPolicy>(how_);
    if (!policy && recorded.stored.empty()) return load_shards(how_, recorded.program, mesh_);
    const MeshMachine same{.machine = {}, .links = std::vector<Link>(mesh_.size())};
    return choose_shards(recorded.program, mesh_, same, policy.value_or(ShardPolicy::megatron),
                         recorded.stored)
        .how;
  }

  const MeshAxes mesh_;
  const std::string how_;
  std::mutex mutex_ = {};
  std::map<std::pair<uint64_t, std::map<ValueId, Sharding>>, Assignment> known_ = {};
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

StepShards shards(const std::string& mesh, const std::string& how) {
  const MeshAxes axes = parse_mesh(mesh);
  check_setting(spool::parse<ShardPolicy>(how) || path_exists(how), {"shard"}, "'", how,
                "' is no way to cut ops: give ", list_of<ShardPolicy>(),
                ", or a file that has one, and none is there of this name");
  const auto chosen = std::make_shared<ChosenShards>(axes, how);
  return {.mesh = axes, .choose = [chosen](const RecordedLoss& loss) { return chosen->of(loss); }};
}

void save_shards(const std::string& path, const StepDescription& step) {
  check(step.shards.has_value(), "save_shards: ", path, ": these steps are not cut over a mesh");
  MetaStream stream{Machine{}};
  const std::unique_ptr<StepModel> model = step.make_model(stream);
  const RecordedLoss recorded = record_loss(*model, stream);
  save_shards(path, recorded.program, step.shards->mesh, step.shards->choose(recorded));
}

}  // namespace spool
