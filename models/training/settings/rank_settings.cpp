// The settings of ranks, which share the micro-batches of a step, and as JSON in no run.json.

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "spool/models/training/settings/setting_checks.h"

namespace spool {
namespace {

constexpr int64_t max_ranks = 64;  // SumRanks::max_ranks
constexpr std::string_view data_axis = "data=";

std::string mesh_text(const RunOptions& o) { return o.mesh; }

void read_mesh(RunOptions& o, const std::string& text) {
  o.mesh = text;
  if (text.empty()) return;
  const bool is_data = text.starts_with(data_axis);
  const std::string count = text.substr(is_data ? data_axis.size() : 0);
  int64_t ranks = 0;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), ranks);
  const bool is_count = error == std::errc() && end == count.data() + count.size();
  check_setting(is_data && is_count && ranks >= 1 && ranks <= max_ranks, {"mesh"}, "{mesh} '", text,
                "' is not data=N of 1 to ", max_ranks,
                " ranks, the only axis along which ranks share work");
  check_setting(o.training.ranks == 0 || o.training.ranks == ranks, {"mesh", "ranks"}, "{mesh} ",
                text, " has ", ranks, " ranks, and {ranks} says ", o.training.ranks,
                "; give one of them");
  o.training.ranks = static_cast<int>(ranks);
}

}  // namespace

namespace settings {

const Settings rank_table{
    {"ranks", &TrainingConfig::ranks,
     "Number of ranks, which share the micro-batches of each step: on a cpu, threads of this "
     "program or processes ({ranks-as}), each with a {memory} and {threads} of its own, by default "
     "its part of the machine; on GPUs, processes with one each.  "
     "In stage 2 ({zero}), with the same {accumulate}, a run ends in the same files on any number "
     "of them.  By default one computes alone",
     at_least(1, max_ranks), execution, in_help},
    {"mesh", SettingAccess<std::string>{mesh_text, read_mesh},
     "How the ranks are arranged: data=N is {ranks} N", any_value, execution, in_help},
    {"zero", &TrainingConfig::zero,
     "What ranks divide, the stage of ZeRO: 0, only micro-batches; 1, the optimizer's state, too; "
     "2, the default, gradients, too",
     at_least(0, 2), execution, in_help},
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
