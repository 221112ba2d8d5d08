#include "spool/models/cli/training_flags.h"

#include <charconv>
#include <filesystem>
#include <limits>

#include "spool/models/cli/command_line.h"
#include "spool/models/families/families.h"
#include "spool/models/families/model_file.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

template <class From, class To>
void override_with(const std::optional<From>& given, To& setting) {
  if (given) setting = static_cast<To>(*given);
}

// The shape of a model with weights is fixed.
void refuse_shape_flags(const CLI::App& command) {
  for (const char* flag : {"--layers", "--heads", "--channels", "--context", "--vocab"}) {
    check(command.count(flag) == 0, flag,
          " cannot be given if --model has weights, whose shape is fixed");
  }
}

void set_policy(const TrainingFlags& g, RunOptions& o, const CLI::App& command) {
  for (const char* flag : {"--recompute", "--offload", "--optimizer-state"}) {
    if (!command.get_option_no_throw(flag)) continue;  // of another command
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
  const bool may_offload = o.policy.offload != Offloading::none || !o.plan.empty() ||
                           (command.count("--recompute") == 0 && command.count("--offload") == 0);
  check(may_offload, "--offload-to ", g.offload_to,
        " needs values to offload; give --offload residual or --offload all, too, or leave out "
        "--recompute and --offload");
  o.policy.target = OffloadTarget::disk;
  o.spill_directory = g.offload_to.substr(disk.size());
}

void set_shape(const TrainingFlags& g, ModelConfig& model) {
  const std::pair<const char*, const std::optional<int64_t>&> given[] = {{"channels", g.channels},
                                                                         {"heads", g.heads},
                                                                         {"layers", g.layers},
                                                                         {"context", g.context},
                                                                         {"vocab", g.vocab}};
  for (const auto& [setting, n] : given) {
    if (n) model = model.with(setting, *n);
  }
}

int64_t warmup_of(const std::string& model, const TrainingConfig& t) {
  const auto preset = model_preset(model);
  const double share = preset ? preset->defaults.warmup : t.model.defaults().warmup;
  return static_cast<int64_t>(share * static_cast<double>(t.steps));
}

void set_schedule(const TrainingFlags& g, TrainingConfig& t) {
  t.schedule = *parse<LrSchedule>(g.lr_schedule);
  override_with(g.decay_share, t.decay_share);
  if (g.options.resume) return;  // the schedule may be the stored run's
  check(t.schedule == LrSchedule::wsd || !g.decay_share,
        "--decay-share is for --lr-schedule wsd, not ", g.lr_schedule);
  check(
      t.schedule != LrSchedule::constant || !g.min_lr,
      "--min-lr has no meaning with --lr-schedule constant, whose learning rate stays the highest");
}

// A flag that says no is of the setting without it.
std::string key_of(const CLI::Option& option) {
  constexpr std::string_view no = "no-";
  const std::string& name = option.get_single_name();
  return name.starts_with(no) ? name.substr(no.size()) : name;
}

std::optional<int64_t> final_eval_batches(const std::string& flag) {
  if (flag == "all") return {};
  if (flag == "none") return 0;
  int64_t batches = 0;
  const char* const end = flag.data() + flag.size();
  const auto [after, error] = std::from_chars(flag.data(), end, batches);
  constexpr int64_t max = std::numeric_limits<int32_t>::max();
  check_setting(error == std::errc() && after == end && batches > 0 && batches <= max,
                {"final-eval"}, "the evaluation at the end reads a number of batches, at most ",
                max, ", all or none, not '", flag, "'");
  return batches;
}

}  // namespace

std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  const auto whole = std::filesystem::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

RunOptions resolve_training(const TrainingFlags& g, const CLI::App& command) {
  RunOptions o = g.options;
  const TrainingConfig flags = o.training;
  TrainingConfig& t = o.training;
  if (has_weights(o.model) && path_exists(o.model)) {
    refuse_shape_flags(command);
    o.model = absolute_path(o.model);
  }
  t = training_preset(o.model);
  t.steps = flags.steps;
  t.dropout = flags.dropout;
  t.seed = flags.seed;
  t.nondeterministic = flags.nondeterministic;
  t.optimizer.clip = flags.optimizer.clip;
  t.optimizer.beta1 = flags.optimizer.beta1;
  t.optimizer.eps = flags.optimizer.eps;
  set_shape(g, t.model);
  override_with(g.batch, t.batch);
  override_with(g.accumulate, t.accumulate);
  t.seq = g.seq.value_or(std::min(t.seq, t.model.shape().context));
  override_with(g.lr, t.lr);
  t.min_lr = g.min_lr.value_or(rounded_to_decimals(t.lr / 10));
  override_with(g.beta2, t.optimizer.beta2);
  override_with(g.weight_decay, t.optimizer.decay);
  t.warmup = g.warmup.value_or(warmup_of(o.model, t));
  set_schedule(g, t);
  override_with(g.chunk_loss, t.chunks.loss_rows);
  override_with(g.chunk_mlp, t.chunks.mlp_rows);
  t.dtype = *parse<DType>(g.dtype);
  t.optimizer.rounding = *parse<Rounding>(g.rounding);
  if (!g.memory.empty()) o.memory = parse_bytes(g.memory);
  if (!g.host_memory.empty()) o.host_memory = g.host_memory == "0" ? 0 : parse_bytes(g.host_memory);
  o.final_eval_batches = final_eval_batches(g.final_eval);
  set_policy(g, o, command);
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0) o.given.insert(key_of(*option));
  }
  return o;
}

void add_shape_flags(CLI::App& app, TrainingFlags& g) {
  app.add_option("--model", g.options.model,
                 "Model: " + list_of_presets() +
                     ", with random weights; or, to start from trained weights, " + model_forms)
      ->capture_default_str();
  app.add_option("--layers", g.layers, "Number of layers (blocks)");
  app.add_option("--heads", g.heads, "Number of attention heads; must divide --channels");
  app.add_option("--channels", g.channels, "Width of the residual stream");
  app.add_option("--context", g.context, "Maximum number of tokens per row");
  app.add_option("--vocab", g.vocab, "Size of the vocabulary, at least the tokenizer's");
  add_dtype_flag(app, g.dtype,
                 "Type of the weights: f32, or bf16 with f32 masters (but see --rounding)")
      ->capture_default_str();
}

namespace {

void add_schedule_flags(CLI::App& app, TrainingFlags& g) {
  app.add_option("--lr", g.lr, "Highest learning rate, reached after the warm-up");
  app.add_option("--min-lr", g.min_lr,
                 "Learning rate that the schedule ends at, which a step after the last would have; "
                 "by default a tenth of --lr");
  app.add_option(
         "--lr-schedule", g.lr_schedule,
         "Learning rate after the warm-up: cosine or linear, down to --min-lr; constant; or "
         "wsd, constant and over the last steps down to --min-lr: until then the run is what a "
         "longer one with the same --warmup is")
      ->check(one_of({enumerator_names<LrSchedule>.begin(), enumerator_names<LrSchedule>.end()}))
      ->capture_default_str();
  app.add_option(
      "--decay-share", g.decay_share,
      "Share of --steps, at their end, in which --lr-schedule wsd decays; by default 0.2");
  app.add_option("--warmup", g.warmup,
                 "Steps of linear warm-up; by default a part of --steps that depends on the model");
}

void add_optimizer_flags(CLI::App& app, TrainingFlags& g) {
  AdamWSettings& o = g.options.training.optimizer;
  app.add_option("--beta1", o.beta1, "AdamW's decay of the first moment")->capture_default_str();
  app.add_option("--beta2", g.beta2, "AdamW's decay of the second moment");
  app.add_option("--adam-epsilon", o.eps, "AdamW's epsilon, added to the root of the second moment")
      ->capture_default_str();
  app.add_option("--weight-decay", g.weight_decay,
                 "AdamW's weight decay, applied to matrices only");
  app.add_option("--clip", o.clip,
                 "Maximum norm of all gradients together; larger ones are scaled down to it; 0: no "
                 "limit")
      ->capture_default_str();
  app.add_option("--rounding", g.rounding,
                 "Rounding of updated weights: nearest; or, with --dtype bf16, stochastic: up or "
                 "down at random, which needs no f32 masters and saves 4 bytes per parameter")
      ->check(one_of({name(Rounding::nearest), name(Rounding::stochastic)}))
      ->capture_default_str();
}

}  // namespace

void add_sample_flag(CLI::App& app, RunOptions& o) {
  app.add_flag("!--no-sample", o.sample, "Write no text samples, and foretell none");
}

void add_step_flags(CLI::App& app, TrainingFlags& g) {
  TrainingConfig& t = g.options.training;
  app.add_option("--batch", g.batch, "Rows per micro-batch");
  app.add_option("--seq", g.seq,
                 "Tokens per row; by default --context, or less where that is long");
  app.add_option("--accumulate", g.accumulate, "Micro-batches per step");
  app.add_option("--steps", t.steps, "Number of optimizer steps")->capture_default_str();
  add_schedule_flags(app, g);
  add_optimizer_flags(app, g);
  app.add_option(
         "--dropout", t.dropout,
         "Probability of dropout, applied after the embedding and to each branch of a block")
      ->capture_default_str();
  app.add_option("--chunk-loss", g.chunk_loss,
                 "Maximum number of rows of logits in memory at a time; 0: all; by default what "
                 "--memory needs");
  app.add_option(
      "--chunk-mlp", g.chunk_mlp,
      "Maximum number of rows of each block's MLP, from its norm to the end of the "
      "block, in memory at a time; 0: all; by default what --memory needs, layer by layer");
  app.add_option("--seed", t.seed, "Seed of all random numbers")->capture_default_str();
  app.add_flag("--nondeterministic", t.nondeterministic,
               "On a GPU, let cuDNN form the sums of attention's backward in any order: it takes "
               "less memory on most GPUs, and the same run may have other losses in their last "
               "bits; on a cpu "
               "nothing changes");
}

void add_policy_flags(CLI::App& app, TrainingFlags& g) {
  app.add_option(
      "--recompute", g.recompute,
      "Values to recompute in backward rather than keep: none, or a comma-separated list "
      "of norms, gelu (every activation), attention and block (everything in a block except its "
      "input); by default, and without --offload, what --memory needs");
  app.add_option(
         "--offload", g.offload,
         "Values to copy off the device until backward needs them: none, the default; "
         "residual (the blocks' inputs); or all (every saved value); only values of at least "
         "1 MiB with time for both copies are offloaded")
      ->check(one_of({name(Offloading::none), name(Offloading::residual), name(Offloading::all)}));
  app.add_option(
         "--offload-to", g.offload_to,
         "Destination of offloaded values: host, or disk:DIRECTORY, an unnamed file there that "
         "disappears with the process")
      ->capture_default_str();
  app.add_option(
         "--host-memory", g.host_memory,
         "Memory of a GPU's host for what leaves the GPU because --memory needs it; 0: none; "
         "by default half of the host's")
      ->check(memory_amount_or_none());
  app.add_option(
         "--optimizer-state", g.optimizer_state,
         "Place of AdamW's state: device; streamed (on the host, moved through the device "
         "in each step); or cpu (on the host, which also updates the parameters); by default "
         "on the device, or on a GPU as much of it as --memory allows")
      ->check(one_of({name(OptimizerState::device), name(OptimizerState::streamed),
                      name(OptimizerState::cpu)}));
  app.add_option(
      "--plan", g.options.plan,
      "File with a plan of what is kept, recomputed and offloaded, as --save-plan writes "
      "it; replaces --recompute, --offload and --optimizer-state, and has the chunks it was made "
      "for");
  app.add_option("--save-plan", g.options.save_plan, "File to write the plan of this run to")
      ->check(file_of("a plan"));
}

void add_machine_flags(CLI::App& app, TrainingFlags& g, const std::string& memory) {
  app.add_option("--memory", g.memory, memory)->check(memory_amount());
  add_device_flag(app, g.device);
  add_threads_flag(app, g.options.threads);
}

// The defaults that depend on the model.
std::string preset_table() {
  std::string table = "Defaults that depend on the model:";
  for (const ModelPreset& preset : model_presets()) {
    const TrainingConfig t = training_preset(std::string(preset.name));
    const ModelShape m = preset.config.shape();
    table += sentence("\n  ", preset.name, ": --layers ", m.layers, " --heads ", m.heads.query,
                      " --channels ", m.channels, " --context ", m.context, " --vocab ",
                      m.vocabulary, " --batch ", t.batch, " --lr ", t.lr, " --beta2 ",
                      t.optimizer.beta2, " --weight-decay ", t.optimizer.decay);
  }
  return table;
}

}  // namespace spool
