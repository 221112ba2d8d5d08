#include "spool/models/training/run_options.h"

#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "spool/models/data/find_files.h"
#include "spool/models/families/families.h"
#include "spool/models/families/gpt2_config.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/training/settings/home_settings.h"
#include "spool/models/training/settings/setting.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/planner/plan_file.h"
#include "spool/planner/sharding/shard_choice.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

using nlohmann::json;

constexpr const char* model_numbers = "config";

// config.json of a run whose version had GPT-2 alone, and stored its numbers one by one.
json config_of_gpt2(const JsonField& stored) {
  const auto integer = [&](const char* key) { return stored.member(key).integer<int64_t>(); };
  const Gpt2Config config{.layers = integer("layers"),
                          .heads = integer("heads"),
                          .channels = integer("channels"),
                          .context = integer("context"),
                          .vocabulary = integer("vocab"),
                          .epsilon = stored.member("epsilon").number(),
                          .gelu = stored.member("gelu").enumerator<GeluForm>()};
  json fields;
  config.write(fields);
  return fields;
}

// The stored settings, with the defaults of those that an earlier version did not store.
JsonField completed(const JsonField& stored) {
  // A run of a version without these two has its data as that version read it.
  json all = configuration({.data_format = DataFormat::by_name, .separate = false});
  // Without these, a run's losses cannot be told.
  for (const char* key : {model_numbers, "batch", "seq", "steps", "data"}) all.erase(key);
  stored.expect(stored.value().is_object(), "is not an object");
  all.update(stored.value());
  if (!all.contains(model_numbers)) all[model_numbers] = config_of_gpt2(stored);
  return {json{{"configuration", all}}, stored.file()};
}

// The settings, and those that the model's numbers are given by.
json with_shape(json all, const ModelConfig& model) {
  RunOptions shaped;
  shaped.training.model = model;
  for (const Setting& s : run_settings()) {
    if (s.kind == SettingKind::shape) all[s.key] = s.to_json(shaped);
  }
  // Two files of the same model may say more or less of it.
  all[model_numbers] = model.with("layers", model.shape().layers).to_json();
  return all;
}

// Whether a run may go on with another value than its own.
bool may_go_on(const RunOptions& o, const Setting& s, const json& ours, const json& theirs) {
  if (!o.given.contains(s.key)) return false;
  const bool is_longer =
      s.kind == SettingKind::length && theirs.is_number_integer() && ours > theirs;
  return is_longer || may_change(s.kind);
}

// What a setting amounts to.
json effective(const json& settings, const std::string& key) {
  const json value = settings.value(key, json());
  return key == "data-seed" && value.is_null() ? settings.value("seed", json()) : value;
}

// A value in a message, whose texts may be no UTF-8.
std::string shown(const json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

void refuse_other_settings(const RunOptions& o, const JsonField& settings) {
  const json all = with_shape(configuration(o), o.training.model);
  const json stored = with_shape(settings.value(), model_config(settings.member(model_numbers)));
  for (const auto& [key, value] : all.items()) {
    const json ours = effective(all, key), theirs = effective(stored, key);
    const Setting& setting = run_setting(key);
    if (theirs == ours || may_go_on(o, setting, ours, theirs)) continue;
    constexpr const char* remedy =
        "; leave the setting out to resume, or start a new run in another directory";
    check_setting(!o.given.contains(key), {key.c_str(), "out"}, "the run cannot be resumed with ",
                  key, " ", shown(ours), ": it has ", shown(theirs), remedy);
    const bool is_of_model = setting.kind == SettingKind::shape || key == model_numbers;
    check_setting(!is_of_model || !o.given.contains("model"), {"model", "out"},
                  "the run cannot be resumed with the model ", o.model, ", of ", key, " ",
                  shown(ours), ": it has ", shown(theirs), remedy);
  }
}

// Contradictions between what is given of ranks.
void check_given_ranks(const RunOptions& o) {
  const TrainingConfig& t = o.training;
  const auto is_given = [&](const char* key) { return o.given.contains(key); };
  check_setting(t.ranks > 0 || !is_given("zero"), {"zero", "ranks"},
                "{zero} says what ranks divide, and there are none; give {ranks}, too");
  check_setting(t.zero < 3 || o.shard_axes.empty() || t.replicas() > 1, {"zero", "mesh"},
                "{zero} 3 ",
                "divides parameters among ranks that have micro-batches of their own, and along ",
                o.shard_axes, " all share each one; give {mesh} an axis data, too, or {zero} 2");
  check_setting(t.zero == 3 || !o.policy.gathers, {"recompute", "zero"}, "{recompute} gathers is ",
                "for parameters that ranks store in parts; give {zero} 3, too");
  for (const char* key : {"rank-timeout", "ranks-as"}) {
    check_setting(t.ranks > 0 || !is_given(key), {key, "ranks"}, "{", key,
                  "} is of ranks, and there are none; give {ranks}, too");
  }
}

// Contradictions between settings that are given.
void check_given(const RunOptions& o) {
  const TrainingConfig& t = o.training;
  const auto is_given = [&](const char* key) { return o.given.contains(key); };
  const bool keeps_schedule = o.resume;  // it may be the stored run's
  check_setting(keeps_schedule || t.schedule == LrSchedule::wsd || !is_given("decay-share"),
                {"decay-share", "lr-schedule"}, "{decay-share} is for {lr-schedule} wsd, not ",
                name(t.schedule));
  check_setting(
      keeps_schedule || t.schedule != LrSchedule::constant || !is_given("min-lr"),
      {"min-lr", "lr-schedule"},
      "{min-lr} has no meaning with {lr-schedule} constant, whose learning rate stays the "
      "highest");
  check_given_ranks(o);
  check_given_adapters(o);
  check_setting(!o.epochs || !is_given("steps"), {"epochs", "steps"},
                "{epochs} and {steps} both say how long the run is; give one of them");
  for (const char* key : {"batch", "accumulate"}) {
    check_setting(!o.tokens_per_step || !is_given(key), {key, "tokens-per-step"}, "{", key,
                  "} and {tokens-per-step} both say how a step is split into micro-batches; give "
                  "{tokens-per-step} alone, or {batch} and {accumulate}");
  }
  check_setting(!o.tokens_per_step || o.plan.empty() || keeps_schedule, {"plan", "tokens-per-step"},
                "{plan} is of one split into micro-batches; give its {batch} and {accumulate} "
                "instead of {tokens-per-step}");
  for (const char* key : {"recompute", "offload", "optimizer-state", "parameters", "update"}) {
    check_setting(o.plan.empty() || !is_given(key), {key, "plan"}, "{", key,
                  "} and {plan} both say what to keep; give one of them");
  }
  const bool may_offload = o.policy.offload != Offloading::none || !o.plan.empty() ||
                           (!is_given("recompute") && !is_given("offload"));
  check_setting(
      may_offload || o.policy.target == OffloadTarget::host, {"offload-to", "offload", "recompute"},
      "{offload-to} disk:", o.spill_directory,
      " needs values to offload; give {offload} residual or {offload} all, too, or leave out "
      "{recompute} and {offload}");
}

// Splits a step of so many tokens into micro-batches of one row, until a search chooses.
void split_into_rows(RunOptions& o, int64_t tokens) {
  run_setting("seq").check(o);
  const int64_t seq = o.training.seq, rows = tokens / seq, below = rows * seq;
  check_setting(rows <= largest_count, {"tokens-per-step", "seq"}, "a step of ", tokens,
                " tokens has ", rows, " rows of ", seq, " tokens, and may have at most ",
                largest_count);
  check_setting(below == tokens, {"tokens-per-step", "seq"}, "{tokens-per-step} ", tokens,
                " is no multiple of {seq} ", seq, "; the nearest ",
                rows > 0 ? sentence("are ", below, " and ") : "is ", below + seq);
  const int ranks = o.training.replicas();
  check_setting(rows % ranks == 0, {"tokens-per-step", "ranks"}, "a step of ", tokens,
                " tokens has ", rows, " rows of ", seq, " tokens, which ", ranks,
                " ranks cannot share; give a multiple of ", ranks * seq, " tokens");
  o.training.batch = 1;
  o.training.accumulate = rows;
}

void check_tokens_of_stored_run(const RunOptions& o) {
  const TrainingConfig& t = o.training;
  check_setting(
      !o.tokens_per_step || *o.tokens_per_step == t.tokens_per_step(), {"tokens-per-step", "out"},
      "the run cannot be resumed with tokens-per-step ", o.tokens_per_step.value_or(0),
      ": it keeps its ", t.tokens_per_step(), ", in micro-batches of ", t.batch, " rows of ", t.seq,
      " tokens, ", t.accumulate,
      " a step; leave the setting out to resume, or start a new run in another directory");
}

// Each setting has what is given, or its default.
RunOptions options_with(const GivenTexts& given) {
  RunOptions o;
  for (const auto& [key, texts] : given) {
    check_setting(find_setting(key), {key.c_str()}, "there is no setting ", key);
    o.given.insert(key);
  }
  for (const Setting& setting : run_settings()) {
    const auto texts = given.find(setting.key);
    texts == given.end() ? setting.reset(o) : setting.read(o, texts->second);
  }
  if (!o.resume) settle_homes(o);
  check_given(o);
  if (!o.shard_axes.empty() && o.shard.empty()) {
    o.shard = name(ShardPolicy::automatic);
    o.training.shards = shards(o.shard_axes, o.shard);
  }
  if (o.training.zero == 3 && o.training.ranks > 0 && !o.training.shards) {
    o.training.shards = whole_micro_batches();
  }
  if (o.tokens_per_step && !o.resume) split_into_rows(o, *o.tokens_per_step);
  return o;
}

// Takes the chunks that a plan was made for; those that were given, or are those of a run that
// resumes, may not differ.
void adopt_chunks(RunOptions& o, const PlannedFor& made_for) {
  const auto adopt_chunk = [&](const char* key, int64_t& ours, int64_t of_plan) {
    const bool fixed = o.resume || o.given.contains(key);
    check_setting(ours == of_plan || !fixed, {"plan", key}, "the plan was made for ", key, " ",
                  of_plan, ", and ", o.resume ? "the run that resumes has " : "given is ", ours,
                  " (rows; 0: all); ",
                  o.resume ? "make a plan with the run's" : "leave the setting out",
                  ", or take another plan");
    ours = of_plan;
  };
  adopt_chunk("chunk-loss", o.training.chunks.loss_rows, made_for.loss_rows);
  adopt_chunk("chunk-mlp", o.training.chunks.mlp_rows, made_for.mlp_rows);
}

// Also of a link to a file that is not there yet.
std::filesystem::path resolved(std::filesystem::path name) {
  constexpr int max_links = 40;  // as for the system
  std::error_code none;
  if (auto whole = std::filesystem::absolute(name, none); !none) name = std::move(whole);
  for (int i = 0; i < max_links; ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(name, none);
    if (none) break;
    name = name.parent_path() / target;
  }
  std::filesystem::path whole = std::filesystem::weakly_canonical(name, none);
  return none ? name.lexically_normal() : whole;
}

}  // namespace

ModelPaths paths_of(const RunOptions& o) { return {o.model, o.adapter, o.base}; }

bool has_weights(const std::string& model) { return !model_preset(model).has_value(); }

RunOptions run_options(const GivenTexts& given, NameOfKey name_of) {
  try {
    return options_with(given);
  } catch (const Error& e) {
    const std::string words = e.what();
    throw Error(e.kind(), words.starts_with('{') ? with_names(words, name_of) : words, e.fields());
  }
}

TrainingDefaults training_defaults(const RunOptions& o) {
  constexpr double lr_of_adapters = 2e-4;
  const auto preset = model_preset(o.model);
  TrainingDefaults defaults = preset ? preset->defaults : o.training.model.defaults();
  if (o.training.model.lora()) defaults.lr = lr_of_adapters;
  return defaults;
}

bool names_examples(const RunOptions& o) {
  try {
    return are_examples(find_files(o.data), o.data_format);
  } catch (const Error&) {
    return false;  // who reads them says it
  }
}

int64_t usual_micro_batches(const RunOptions& o) {
  return names_examples(o) ? 1 : training_defaults(o).accumulate;
}

void check_settings_of_examples(const RunOptions& o, bool are_examples) {
  constexpr std::array<std::pair<const char*, const char*>, 5> all{
      {{"epochs", "epochs are counted of"},
       {"pack", "rows are packed of"},
       {"learn", "what is learnt can be said of"},
       {"system", "a system's message belongs to conversations, which are"},
       {"chat-format", "a format of chats is for conversations, which are"}}};
  for (const auto& [key, words] : all) {
    check_setting(are_examples || !o.given.contains(key), {key, "data"}, words,
                  " examples in lines of JSON, and the data is text or tokens; leave the setting "
                  "out, or give such a file");
  }
}

std::string table_of_presets() {
  std::string table = "Defaults that depend on the model:";
  for (const ModelPreset& preset : model_presets()) {
    const RunOptions o = run_options({{"model", {std::string(preset.name)}}});
    table += sentence("\n  ", preset.name, ":");
    for (const Setting& s : run_settings()) {
      if (s.shown != DefaultShown::by_model) continue;
      table += sentence(" {", s.key, "} ", s.text(o));
    }
  }
  return table;
}

std::optional<Plan> read_given_plan(RunOptions& o) {
  if (o.plan.empty()) return {};
  StoredPlan stored = load_plan(o.plan);
  if (stored.made_for) adopt_chunks(o, *stored.made_for);
  return std::move(stored.plan);
}

json configuration(const RunOptions& o) {
  json all = json::object();
  for (const Setting& s : run_settings()) {
    if (is_stored(s.kind)) all[s.key] = s.to_json(o);
  }
  return all;
}

void adopt(RunOptions& o, const JsonField& stored) {
  const JsonField whole = completed(stored);
  const JsonField theirs = whole.member("configuration");
  refuse_other_settings(o, theirs);
  const json ours = configuration(o);
  for (const Setting& s : run_settings()) {
    if (!is_stored(s.kind)) continue;
    const JsonField field = theirs.member(s.key);
    if (!may_go_on(o, s, ours.at(s.key), field.value())) s.from_json(o, field);
  }
  check_tokens_of_stored_run(o);
  settle_homes(o);
}

const std::set<std::string>& settings_without_numbers() {
  static const std::set<std::string> keys = [] {
    std::set<std::string> all;
    for (const Setting& s : run_settings()) {
      if (is_stored(s.kind) && !has_numbers(s.kind)) all.insert(s.key);
    }
    return all;
  }();
  return keys;
}

void check_run_settings(const RunOptions& o) {
  for (const Setting& s : run_settings()) {
    if (!has_numbers(s.kind)) s.check(o);
  }
  const bool rounds_alone = o.training.optimizer.rounding != Rounding::nearest;
  check_setting(!o.training.model.lora() || !rounds_alone, {"lora", "rounding"},
                "adapters are trained as f32 masters, and with stochastic rounding there are none; "
                "leave the rounding out: the weights of the model are frozen, and have no masters");
  const bool evaluates = o.eval_every > 0 && o.eval_batches > 0;
  constexpr const char* of_no_evaluations =
      ", and the run has none between its steps; give the steps between them, or ";
  check_setting(evaluates || !o.keep_best, {"keep-best", "eval-every"},
                "the best model is found by evaluations", of_no_evaluations, "do not keep it");
  check_setting(evaluates || o.patience == 0, {"patience", "eval-every"},
                "patience counts evaluations", of_no_evaluations, "a patience of 0");
  check_setting(o.sample || o.sample_every == 0, {"sample-every", "sample"}, "text samples every ",
                o.sample_every, " steps, and none at all; leave one of these out");
}

void check_names_differ(const RunOptions& o, const NamedFiles& others) {
  std::map<std::filesystem::path, const char*> keys;
  NamedFiles files{{"out", o.out},
                   {"log", o.log},
                   {"trace", o.trace},
                   {"save-plan", o.save_plan},
                   {"save-shard", o.save_shard},
                   {"report", o.report}};
  files.insert(files.end(), others.begin(), others.end());
  for (const auto& [key, name] : files) {
    if (name.empty()) continue;
    const auto [at, is_new] = keys.emplace(resolved(name), key);
    check_setting(is_new, {at->second, key}, name,
                  " is the name of two outputs; give each a name of its own");
  }
}

void check_can_be_stored(const RunOptions& o) {
  const json settings = configuration(o);
  for (const auto& [key, value] : settings.items()) {
    for (const json& part : value.is_array() ? value : json::array({value})) {
      if (!part.is_string()) continue;
      const auto& text = part.get_ref<const std::string&>();
      check_setting(is_utf8(text), {key.c_str()}, "'", text,
                    "' is not UTF-8, which a checkpoint or a report could not store; rename it");
    }
  }
}

}  // namespace spool
