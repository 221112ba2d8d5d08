// The settings of ranks, which share the micro-batches of a step, and as JSON in no run.json.

#include <cmath>
#include <nlohmann/json.hpp>

#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/training/settings/setting_checks.h"

namespace spool {
namespace {

constexpr int64_t max_ranks = 64;  // SumRanks::max_ranks
constexpr std::string_view data_axis = "data";

std::string mesh_text(const RunOptions& o) { return o.mesh; }

void read_mesh(RunOptions& o, const std::string& text) {
  o.mesh = text;
  const auto [ranks, shared_axes] = rank_mesh(text);
  o.shard_axes = shared_axes;
  if (ranks == 0) return;
  check_setting(o.training.ranks == 0 || o.training.ranks == ranks, {"mesh", "ranks"}, "{mesh} ",
                text, " has ", ranks, " ranks, and {ranks} says ", o.training.ranks,
                "; give one of them");
  o.training.ranks = ranks;
}

std::string shard_text(const RunOptions& o) { return o.shard; }

void read_shard(RunOptions& o, const std::string& text) {
  o.shard = text;
  o.training.shards.reset();
  if (o.shard_axes.empty()) {
    check_setting(
        text.empty(), {"shard", "mesh"},
        "{shard} says how ranks share each micro-batch, "
        "and there are none that do; give {mesh} an axis other than data, such as tensor=2");
    return;
  }
  if (!text.empty()) o.training.shards = shards(o.shard_axes, text);
}

}  // namespace

RankMesh rank_mesh(const std::string& text) {
  if (text.empty()) return {};
  const MeshAxes mesh = parse_mesh(text);
  const int ranks = mesh.ranks();
  check_setting(ranks <= max_ranks, {"mesh"}, "mesh '", text, "' has ", ranks,
                " ranks; there are at most ", max_ranks);
  MeshAxes rest;
  for (size_t a = 0; a < mesh.size(); ++a) {
    const bool is_data = mesh.axes[a].name == data_axis;
    check_setting(!is_data || a == 0, {"mesh"}, "mesh '", mesh.text(),
                  "' has the axis data behind others; it comes first, as its ranks have "
                  "batches of their own");
    if (!is_data) rest.axes.push_back(mesh.axes[a]);
  }
  return {.ranks = ranks, .shared_axes = rest.size() > 0 ? rest.text() : ""};
}

namespace settings {

const Settings rank_table{
    {"ranks", &TrainingConfig::ranks,
     "Number of ranks, which share the micro-batches of each step: on a cpu, threads of this "
     "program or processes ({ranks-as}), each with a {memory} and {threads} of its own, by default "
     "its part of the machine; on GPUs, processes with one each.  "
     "From stage 2 on ({zero}), with the same {accumulate}, a run ends in the same files on any "
     "number "
     "of them.  By default one computes alone",
     at_least(1, max_ranks), execution, in_help},
    {"mesh", SettingAccess<std::string>{mesh_text, read_mesh},
     "How the ranks are arranged: data=N is {ranks} N; along other axes, such as those of "
     "tensor=2, data=2,tensor=4 or 2x4, they share each micro-batch ({shard})",
     any_value, execution, in_help},
    {"shard", SettingAccess<std::string>{shard_text, read_shard},
     "How ops are cut along the axes of {mesh} other than data: auto, the default, the fastest in "
     "the memory there is; none; rows; megatron, by heads, channels and vocabulary; megatron-rows, "
     "which cuts rows where there are no products; or a FILE of {save-shard}",
     any_value, execution, in_help},
    {"save-shard", &RunOptions::save_shard, "File to write how ops are cut to", any_value,
     execution, in_help},
    {"zero", &TrainingConfig::zero,
     "What ranks divide, the stage of ZeRO: 0, only micro-batches; 1, the optimizer's state, too; "
     "2, the default, gradients, too; 3, large parameters, too, which each op that reads them "
     "gathers",
     at_least(0, 3), execution, in_help},
    {"ranks-as", &RunOptions::ranks_as,
     "What the ranks are: threads of this program, the default, or processes that it starts",
     one_of({"threads", "processes"}), execution, in_help},
    {"meet", &RunOptions::meet,
     "HOST:PORT where rank 0 listens for the ranks that a launcher started (torchrun, mpirun, "
     "srun), in place of what the launcher says",
     any_value, execution, in_help},
    {"rank-timeout", &RunOptions::rank_timeout,
     "Seconds that a rank waits in a step for the others before the run ends",
     must<double>("the time that ranks wait must be a finite number of seconds, at least 1",
                  [](double s) { return std::isfinite(s) && s >= 1; }),
     execution, as_value},
};

}  // namespace settings
}  // namespace spool
