#include <filesystem>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/progress.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/families/model_file.h"
#include "spool/models/training/train.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/ranks/timeout.h"

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

// Threads of this program, of which rank 0 alone prints.
void train_on_ranks(const RunOptions& o) {
  set_rank_timeout(o.rank_timeout);
  RunPrinter printer;
  run_ranks(o.training.ranks, [&](const std::shared_ptr<Communicator>& own) {
    RunListener silent;
    RunListener& listener = own->rank() == 0 ? static_cast<RunListener&>(printer) : silent;
    const RunSetup run = set_up_run(o, listener, own);
    if (own->rank() == 0) catch_interrupts();
    train(run, interrupted);
  });
}

}  // namespace

std::function<int()> add_train(CLI::App& app) {
  using namespace settings;
  add_settings(
      app, {&model_table, &data_table, &tokenizer_table, &step_table, &policy_table, &machine_table,
            &rank_table, &output_table, &checkpoint_table, &evaluation_table, &sample_table});
  return [&app] {
    outlive_readers();
    const RunOptions o = options_to_train(app);
    if (o.training.ranks > 0 && !o.dry_run) {
      train_on_ranks(o);
    } else {
      RunPrinter printer;
      const RunSetup run = set_up_run(o, printer);
      catch_interrupts();
      train(run, interrupted);
    }
    return interrupted() ? stopped_by_a_signal : 0;
  };
}

}  // namespace spool
