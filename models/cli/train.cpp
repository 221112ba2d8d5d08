#include <filesystem>
#include <optional>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/progress.h"
#include "spool/models/cli/ranks/train_ranks.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/families/model_file.h"
#include "spool/models/training/train.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/ranks/launcher.h"

#ifndef SPOOL_SOURCE_DIR
#define SPOOL_SOURCE_DIR "."
#endif

namespace spool {
namespace {

// Refuses a model that lacks its weights, before anything is planned.
void check_weights(const CLI::App& command) {
  const auto given = [&](const char* flag) {
    const auto values = command.get_option(flag)->reduced_results();
    return values.empty() ? std::string() : values.back();
  };
  const std::string model = given("--model");
  if (model.empty() || !has_weights(model) || !path_exists(model)) return;
  (void)ModelFile({model, given("--adapter"), given("--base")});
}

RunOptions options_to_train(const CLI::App& command, const std::optional<LaunchedRank>& launched) {
  check_weights(command);
  RunOptions o = options_of(command, launched ? launched->size : 0);
  check_launch(o, launched);
  o.device = device_of(o);
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
  if (o.training.ranks == 0) return train_alone(o);
  if (starts_processes(o)) return train_on_processes(o);
  const bool has_gpus = o.device.type == DeviceType::cuda;
  return o.dry_run && !has_gpus ? train_alone(o) : train_on_threads(o);
}

int train_launched(const CLI::App& command, const LaunchedRank& launched) {
  return run_launched(launched, command.get_option("--meet")->as<std::string>(),
                      [&] { return training_as_rank(options_to_train(command, launched)); });
}

}  // namespace

std::function<int()> add_train(CLI::App& app) {
  using namespace settings;
  add_settings(app, {&model_table, &adapter_table, &data_table, &tokenizer_table, &step_table,
                     &policy_table, &machine_table, &rank_table, &output_table, &checkpoint_table,
                     &evaluation_table, &sample_table});
  return [&app] {
    outlive_readers();
    const std::optional<LaunchedRank> launched = rank_of_launcher();
    return launched ? train_launched(app, *launched) : train_unlaunched(options_to_train(app, {}));
  };
}

}  // namespace spool
