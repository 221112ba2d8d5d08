#include <filesystem>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/progress.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/families/model_file.h"
#include "spool/models/training/train.h"
#include "spool/runtime/files/file.h"

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

RunOptions options_to_train(const CLI::App& command) {
  check_weights(command);
  RunOptions o = options_of(command);
  o.device = device_of(o.device_name);
  o.default_texts = SPOOL_SOURCE_DIR;
  if (o.out.empty()) o.out = "runs/" + std::filesystem::path(o.model).filename().string();
  return o;
}

}  // namespace

std::function<int()> add_train(CLI::App& app) {
  using namespace settings;
  add_settings(
      app, {&model_table, &data_table, &tokenizer_table, &step_table, &policy_table, &machine_table,
            &output_table, &checkpoint_table, &evaluation_table, &sample_table});
  return [&app] {
    outlive_readers();
    RunPrinter printer;
    const RunSetup run = set_up_run(options_to_train(app), printer);
    catch_interrupts();
    train(run, interrupted);
    return interrupted() ? stopped_by_a_signal : 0;
  };
}

}  // namespace spool
