#include <filesystem>
#include <limits>
#include <memory>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/progress.h"
#include "spool/models/cli/training_flags.h"
#include "spool/models/families/model_file.h"
#include "spool/models/training/train.h"
#include "spool/runtime/files/file.h"

#ifndef SPOOL_SOURCE_DIR
#define SPOOL_SOURCE_DIR "."
#endif

namespace spool {
namespace {

constexpr int64_t largest_count = std::numeric_limits<int32_t>::max();

RunOptions resolve(const TrainingFlags& flags, const CLI::App& command) {
  const std::string& model = flags.options.model;
  // Refuses a model that lacks its weights, before anything is planned.
  if (has_weights(model) && path_exists(model)) (void)ModelFile(model);
  RunOptions o = resolve_training(flags, command);
  o.device = device_of(flags.device);
  o.default_texts = SPOOL_SOURCE_DIR;
  if (o.out.empty()) o.out = "runs/" + std::filesystem::path(o.model).filename().string();
  for (auto* patterns : {&o.data, &o.val_data}) {
    for (std::string& p : *patterns) p = absolute_path(p);
  }
  return o;
}

void add_data_flags(CLI::App& app, TrainingFlags& g) {
  app.add_option("--data", g.options.data,
                 "Text files or shards of tokens to train on, or globs of either; by default "
                 "Spool's own documents and sources");
  app.add_option("--val-data", g.options.val_data,
                 "Text files, shards or globs to validate with; by default the last tenth of "
                 "--data");
  add_data_format_flags(app, g.options.data_format, g.options.separate);
  app.add_option("--data-seed", g.options.data_seed,
                 "Seed of the order of the data; by default --seed");
  add_tokenizer_flags(app, g.options.tokenizer);
}

void add_run_flags(CLI::App& app, TrainingFlags& g) {
  RunOptions& o = g.options;
  add_machine_flags(
      app, g,
      "Memory budget of the device, such as 2GiB, which the run never exceeds.  What is "
      "recomputed, and what runs in chunks, are chosen for it, unless --recompute, --offload, "
      "--chunk-loss, --chunk-mlp or --plan say so.  By default everything is kept, or as much "
      "as fits into the device's free memory");
  app.add_flag(
      "!--no-graph", o.graph,
      "Enqueue every kernel of every step; by default a step on a GPU is captured as graphs, "
      "which are replayed");
  app.add_option("--out", o.out, "Directory of the run and its checkpoints; by default runs/MODEL")
      ->check(file_of("a run"));
  app.add_flag(
      "--resume", o.resume,
      "Continue from the latest checkpoint in --out (--resume DIR is --resume --out DIR), with the "
      "settings of that run, except those "
      "of where and how it executes (--device, --memory, --recompute, --offload, ...); --steps may "
      "become more, --data and --val-data name data that moved, and --eval-every, --eval-batches, "
      "--keep-best and --patience be others");
  app.add_flag(
      "--dry-run", o.dry_run,
      "Print what the run would take, and write nothing but --save-plan, --report and --trace");
  app.add_option("--log", o.log,
                 "File to log to, one JSON object per line; -: standard output, between the rest")
      ->transform(standard_output_as("/dev/stdout"));
  app.add_option("--report", o.report,
                 "File to write a page to that draws the plan, other budgets, losses and speed: "
                 "before the first step, at checkpoints and at the end; HTML that needs no network")
      ->check(file_of("a page"));
  app.add_option("--trace", o.trace,
                 "File for the timeline of one step, foretold and measured, to open in "
                 "https://ui.perfetto.dev")
      ->check(file_of("a timeline"));
}

void add_checkpoint_flags(CLI::App& app, RunOptions& o) {
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "Steps between checkpoints; 0: only at the end")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option(
         "--checkpoint-minutes", o.checkpoint_minutes,
         "Minutes between checkpoints, whichever step that is; 0: by --checkpoint-every alone")
      ->capture_default_str();
  app.add_option("--keep-checkpoints", o.keep_checkpoints,
                 "Number of checkpoints to keep; older ones are removed")
      ->check(at_least(1, largest_count))
      ->capture_default_str();
}

void add_evaluation_flags(CLI::App& app, TrainingFlags& g) {
  RunOptions& o = g.options;
  app.add_option("--eval-every", o.eval_every, "Steps between evaluations; 0: only at the end")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--eval-batches", o.eval_batches,
                 "Batches of validation data for each of these evaluations, evenly spread")
      ->check(at_least(1, largest_count))
      ->capture_default_str();
  app.add_flag(
      "--keep-best,!--no-keep-best", o.keep_best,
      "Also keep the checkpoint of the smallest loss of these evaluations, as best in --out");
  app.add_option(
         "--patience", o.patience,
         "End the run after so many of these evaluations in a row without a smaller loss; 0: "
         "train all --steps")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--final-eval", g.final_eval,
                 "Batches of validation data for the evaluation at the end, after the model is "
                 "saved: a number, all, the default, or none");
  app.add_option("--sample-every", o.sample_every, "Steps between text samples; 0: only at the end")
      ->check(at_least(0))
      ->capture_default_str();
  add_sample_flag(app, o);
}

}  // namespace

std::function<int()> add_train(CLI::App& app) {
  const auto given = std::make_shared<TrainingFlags>();
  given->options.training.steps = 1000;
  given->options.checkpoint_every = 250;
  add_shape_flags(app, *given);
  add_data_flags(app, *given);
  add_step_flags(app, *given);
  add_policy_flags(app, *given);
  add_run_flags(app, *given);
  add_checkpoint_flags(app, given->options);
  add_evaluation_flags(app, *given);
  app.footer(preset_table());
  return [given, &app] {
    outlive_readers();
    RunPrinter printer;
    const RunSetup run = set_up_run(resolve(*given, app), printer);
    catch_interrupts();
    train(run, interrupted);
    return interrupted() ? stopped_by_a_signal : 0;
  };
}

}  // namespace spool
