#include <filesystem>
#include <memory>
#include <optional>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/progress.h"
#include "spool/models/families/model_file.h"
#include "spool/models/training/training_run.h"
#include "spool/runtime/units.h"

#ifndef SPOOL_SOURCE_DIR
#define SPOOL_SOURCE_DIR "."
#endif

namespace spool {
namespace {

// Flags whose defaults depend on the model: what was given overrides what suits it.
struct Given {
  std::optional<int64_t> layers, heads, channels, context, vocab, batch, seq, warmup, chunk_loss;
  std::optional<double> lr, min_lr, beta2, weight_decay;
  std::string dtype = "f32", rounding = name(Rounding::nearest), device, memory;
  std::string recompute = "none", offload = name(Offloading::none), offload_to = "host",
              optimizer_state = name(OptimizerState::device);
  RunOptions options;
};

template <class From, class To>
void override_with(const std::optional<From>& given, To& setting) {
  if (given) setting = static_cast<To>(*given);
}

// Without a slash at the end.
std::string absolute(const std::string& path) {
  const auto whole = std::filesystem::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

// Weights have the shape they have.
void refuse_shape_flags(const CLI::App& command) {
  for (const char* flag : {"--layers", "--heads", "--channels", "--context", "--vocab"}) {
    check(command.count(flag) == 0, flag,
          " cannot be given where --model has weights, whose shape is fixed");
  }
}

void set_policy(const Given& g, RunOptions& o, const CLI::App& command) {
  for (const char* flag : {"--recompute", "--offload", "--optimizer-state"}) {
    check(o.plan.empty() || command.count(flag) == 0, flag, " and --plan both say what to keep; ",
          "give one of them");
  }
  set_recompute(o.policy, g.recompute);
  o.policy.offload = *parse<Offloading>(g.offload);
  o.policy.optimizer_state = *parse<OptimizerState>(g.optimizer_state);
  if (g.offload_to == "host") return;
  constexpr std::string_view disk = "disk:";
  check(g.offload_to.starts_with(disk) && g.offload_to.size() > disk.size(), "--offload-to '",
        g.offload_to, "' is neither host nor disk:DIRECTORY");
  check(o.policy.offload != Offloading::none || !o.plan.empty(), "--offload-to ", g.offload_to,
        " says where values go, and none do; give --offload residual or all with it");
  o.policy.target = OffloadTarget::disk;
  o.spill_directory = g.offload_to.substr(disk.size());
}

RunOptions resolve(const Given& g, const CLI::App& command) {
  RunOptions o = g.options;
  const TrainingConfig flags = o.training;
  TrainingConfig& t = o.training;
  if (has_weights(o.model) && std::filesystem::exists(o.model)) {
    refuse_shape_flags(command);
    o.model = absolute(o.model);
  }
  t = training_preset(o.model);
  t.accumulate = flags.accumulate;
  t.steps = flags.steps;
  t.dropout = flags.dropout;
  t.seed = flags.seed;
  t.optimizer.clip = flags.optimizer.clip;
  override_with(g.layers, t.model.layers);
  override_with(g.heads, t.model.heads);
  override_with(g.channels, t.model.channels);
  override_with(g.context, t.model.context);
  override_with(g.vocab, t.model.vocabulary);
  override_with(g.batch, t.batch);
  t.seq = g.seq.value_or(std::min(t.seq, t.model.context));
  override_with(g.lr, t.lr);
  t.min_lr = g.min_lr.value_or(t.lr / 10);
  override_with(g.beta2, t.optimizer.beta2);
  override_with(g.weight_decay, t.optimizer.decay);
  t.warmup = g.warmup.value_or(t.steps / 20);
  override_with(g.chunk_loss, t.loss_chunk);
  t.dtype = *parse<DType>(g.dtype);
  t.optimizer.rounding = *parse<Rounding>(g.rounding);
  o.default_texts = SPOOL_SOURCE_DIR;
  o.device = device_of(g.device);
  if (!g.memory.empty()) o.memory = parse_bytes(g.memory);
  set_policy(g, o, command);
  if (o.out.empty()) o.out = "runs/" + std::filesystem::path(o.model).filename().string();
  for (auto* patterns : {&o.data, &o.val_data}) {
    for (std::string& p : *patterns) p = absolute(p);
  }
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0) o.given.insert(option->get_single_name());
  }
  return o;
}

void add_model_flags(CLI::App& app, Given& g) {
  app.add_option("--model", g.options.model,
                 "gpt2-tiny, gpt2-124m, gpt2-355m, gpt2-774m or gpt2-1558m, with weights drawn at "
                 "random; or, to go on from weights there are, " +
                     std::string(model_forms))
      ->capture_default_str();
  app.add_option("--layers", g.layers, "Blocks, instead of the model's");
  app.add_option("--heads", g.heads, "Attention heads, a divisor of the channels");
  app.add_option("--channels", g.channels, "Width of the residual");
  app.add_option("--context", g.context, "Positions there are");
  app.add_option("--vocab", g.vocab, "Vocabulary, at least the tokenizer's");
  add_dtype_flag(app, g.dtype, "f32, or bf16, with f32 master weights unless --rounding says other")
      ->capture_default_str();
}

void add_data_flags(CLI::App& app, Given& g) {
  app.add_option("--data", g.options.data,
                 "Text files, or shards of tokens (*.bin), or globs of either; by default Spool's "
                 "own documents and sources");
  app.add_option("--val-data", g.options.val_data,
                 "The same to validate with; by default the last tenth of the data");
  add_tokenizer_flags(app, g.options.tokenizer);
}

void add_step_flags(CLI::App& app, Given& g) {
  TrainingConfig& t = g.options.training;
  app.add_option("--batch", g.batch, "Rows of a micro-batch");
  app.add_option("--seq", g.seq, "Tokens of a row; by default the context");
  app.add_option("--accumulate", t.accumulate, "Micro-batches of a step")->capture_default_str();
  app.add_option("--steps", t.steps, "Steps of the optimizer")->capture_default_str();
  app.add_option("--lr", g.lr, "Highest learning rate");
  app.add_option("--min-lr", g.min_lr, "Last learning rate; by default a tenth of the highest");
  app.add_option("--warmup", g.warmup, "Steps of warm-up; by default a twentieth of all");
  app.add_option("--beta2", g.beta2, "AdamW's decay of the second moment");
  app.add_option("--weight-decay", g.weight_decay, "AdamW's decay of matrices");
  app.add_option("--clip", t.optimizer.clip, "Largest norm of the gradients; 0: any")
      ->capture_default_str();
  app.add_option("--rounding", g.rounding,
                 "nearest; or, with --dtype bf16, stochastic: weights without f32 masters, 4 bytes "
                 "a parameter less, are rounded up or down at random")
      ->check(CLI::IsMember({name(Rounding::nearest), name(Rounding::stochastic)}))
      ->capture_default_str();
  app.add_option("--dropout", t.dropout, "Probability, after the embedding and on each branch")
      ->capture_default_str();
  app.add_option("--chunk-loss", g.chunk_loss,
                 "Rows of logits that exist at a time; 0: all (default)");
  app.add_option("--seed", t.seed, "Of all random numbers")->capture_default_str();
}

void add_policy_flags(CLI::App& app, Given& g) {
  app.add_option("--recompute", g.recompute,
                 "What is made again in backward rather than kept: none, or a list of norms, gelu, "
                 "attention, block (all of a block but its input)")
      ->capture_default_str();
  app.add_option("--offload", g.offload,
                 "What backward needs and waits off the device: none, residual (the blocks' "
                 "inputs), all (what is saved and has 1 MiB)")
      ->check(CLI::IsMember(
          {name(Offloading::none), name(Offloading::residual), name(Offloading::all)}))
      ->capture_default_str();
  app.add_option("--offload-to", g.offload_to,
                 "host, or disk:DIRECTORY, a file without a name in that directory")
      ->capture_default_str();
  app.add_option("--optimizer-state", g.optimizer_state,
                 "device; streamed: on the host, and through the device in every step; cpu: on the "
                 "host, which updates the parameters")
      ->check(CLI::IsMember({name(OptimizerState::device), name(OptimizerState::streamed),
                             name(OptimizerState::cpu)}))
      ->capture_default_str();
  app.add_option("--plan", g.options.plan,
                 "A plan of what is kept, made again and offloaded, instead of these flags");
  app.add_option("--save-plan", g.options.save_plan, "File to write the plan of this run to");
}

void add_run_flags(CLI::App& app, Given& g) {
  RunOptions& o = g.options;
  app.add_option("--memory", g.memory,
                 "Budget, such as 2GiB; by default just what the run is foretold to need")
      ->check(memory_amount());
  add_device_flag(app, g.device);
  add_threads_flag(app, o.threads);
  app.add_flag("!--no-graph", o.graph,
               "Enqueue every kernel of every step; else a GPU replays a recording of the first");
  app.add_option("--out", o.out, "Directory of the run; by default runs/MODEL");
  app.add_flag(
      "--resume", o.resume,
      "Go on from the latest checkpoint in --out, with the settings of that run, but for where "
      "and how it goes (--device, --memory, --recompute, --offload, ...)");
  app.add_option("--log", o.log, "File to log to, a JSON object a line");
  app.add_option("--trace", o.trace,
                 "File to write the timeline of one step to, foretold and measured, for "
                 "https://ui.perfetto.dev");
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "Steps between checkpoints; 0: only at the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--keep-checkpoints", o.keep_checkpoints, "Checkpoints to keep, the newest")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--eval-every", o.eval_every, "Steps between evaluations; 0: only at the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--sample-every", o.sample_every, "Steps between samples; 0: only at the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

// What the flags are where they are not given.
std::string preset_table() {
  std::string table = "The models, and the flags that suit them:";
  for (const std::string_view name : gpt2_presets()) {
    const TrainingConfig t = training_preset(std::string(name));
    table += sentence("\n  ", name, ": --layers ", t.model.layers, " --heads ", t.model.heads,
                      " --channels ", t.model.channels, " --context ", t.model.context, " --vocab ",
                      t.model.vocabulary, " --batch ", t.batch, " --lr ", t.lr, " --beta2 ",
                      t.optimizer.beta2, " --weight-decay ", t.optimizer.decay);
  }
  return table;
}

}  // namespace

std::function<int()> add_train(CLI::App& app) {
  const auto given = std::make_shared<Given>();
  given->options.training.steps = 1000;
  given->options.checkpoint_every = 250;
  given->options.eval_every = 100;
  add_model_flags(app, *given);
  add_data_flags(app, *given);
  add_step_flags(app, *given);
  add_policy_flags(app, *given);
  add_run_flags(app, *given);
  app.footer(preset_table());
  return [given, &app] {
    RunPrinter printer;
    TrainingRun run(resolve(*given, app), printer);
    catch_interrupts();
    run.run(interrupted);
    return interrupted() ? stopped_by_a_signal : 0;
  };
}

}  // namespace spool
