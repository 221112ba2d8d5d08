#include <filesystem>
#include <optional>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/progress.h"
#include "spool/models/cli/ranks/refusals.h"
#include "spool/models/cli/ranks/train_ranks.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/families/model_file.h"
#include "spool/models/training/train.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/ranks/launcher.h"
#include "spool/runtime/ranks/run_ranks.h"

#ifndef SPOOL_SOURCE_DIR
#define SPOOL_SOURCE_DIR "."
#endif

namespace spool {
namespace {

// Refuses a model that lacks its weights, before anything is planned.
void check_weights(const CLI::App& command) {
  for (const std::string& model : command.get_option("--model")->reduced_results()) {
    if (has_weights(model) && path_exists(model)) (void)ModelFile(model);
  }
}

// Each rank finds its own, so that this process makes no context.
Device gpus_of_ranks(const std::string& flag) {
  check_setting(flag.empty() || parse_device(flag).index == 0, {"ranks", "device"},
                "ranks have a GPU each, not ", flag,
                " alone; say --device cuda, and which GPUs there are in CUDA_VISIBLE_DEVICES");
  return {DeviceType::cuda};
}

RunOptions options_to_train(const CLI::App& command, const std::optional<LaunchedRank>& launched) {
  check_weights(command);
  RunOptions o = options_of(command, launched ? launched->size : 0);
  check_launch(o, launched);
  const bool is_rank_on_gpu = o.training.ranks > 0 && chooses_gpus(o.device_name);
  o.device = is_rank_on_gpu ? gpus_of_ranks(o.device_name) : device_of(o.device_name);
  o.default_texts = SPOOL_SOURCE_DIR;
  if (o.out.empty()) o.out = "runs/" + std::filesystem::path(o.model).filename().string();
  return o;
}

int train_alone(const RunOptions& o) {
  RunPrinter printer;
  const RunSetup run = set_up_run(o, printer);
  catch_interrupts();
  train(run, interrupted);
  return interrupted() ? stopped_by_a_signal : 0;
}

int train_unlaunched(const RunOptions& o) {
  const bool has_gpus = o.device.type == DeviceType::cuda;
  if (o.training.ranks == 0 || (o.dry_run && !has_gpus)) return train_alone(o);
  check_setting(!has_gpus || o.ranks_as != "threads", {"ranks-as", "device"},
                "ranks on GPUs are processes, each with a GPU of its own; leave --ranks-as threads "
                "out, or choose --device cpu");
  if (has_gpus) check_gpus(o.training.ranks, gpu_count());
  const bool is_alone = o.training.ranks == 1;  // and so this process itself
  const bool starts = !is_alone && (has_gpus || o.ranks_as == "processes");
  return starts ? train_on_processes(o) : train_on_threads(o);
}

int train_launched(const CLI::App& command, const LaunchedRank& launched) {
  const auto meet = command.get_option("--meet")->as<std::string>();
  std::optional<MeetingPlace> place;
  std::optional<RunOptions> o;
  try {
    place = meeting_place(launched, meet);
    o = options_to_train(command, launched);
  } catch (const Error& e) {
    if (!is_to_say(launched, meet, e.what())) return 1;
    throw Error(e.kind(), words_of_rank(launched.rank, e.what()), e.fields());
  }
  const bool has_gpus = o->device.type == DeviceType::cuda;  // which their ranks measure
  if (o->dry_run && !has_gpus) return launched.rank > 0 ? 0 : train_alone(*o);
  return train_as_rank(*o, launched, *place);
}

}  // namespace

std::function<int()> add_train(CLI::App& app) {
  using namespace settings;
  add_settings(
      app, {&model_table, &data_table, &tokenizer_table, &step_table, &policy_table, &machine_table,
            &rank_table, &output_table, &checkpoint_table, &evaluation_table, &sample_table});
  return [&app] {
    outlive_readers();
    const std::optional<LaunchedRank> launched = rank_of_launcher();
    return launched ? train_launched(app, *launched) : train_unlaunched(options_to_train(app, {}));
  };
}

}  // namespace spool
