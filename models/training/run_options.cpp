#include "spool/models/training/run_options.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "spool/models/families/families.h"
#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/model_file.h"
#include "spool/planner/plan_file.h"
#include "spool/planner/plan_json.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using nlohmann::json;

constexpr const char *chunked_nodes = "nodes-in-chunks", *model_numbers = "config",
                     *seed_key = "seed", *data_seed_key = "data-seed",
                     *data_format_key = "data-format", *separate_key = "separate";

// Visits every setting of the configuration with its key.
template <class Options, class Visit>
void for_each_setting(Options& o, const Visit& visit) {
  auto& t = o.training;
  visit("model", o.model);
  visit(model_numbers, t.model);
  visit("dtype", t.dtype);
  visit("batch", t.batch);
  visit("seq", t.seq);
  visit("accumulate", t.accumulate);
  visit("steps", t.steps);
  visit("lr-schedule", t.schedule);
  visit("warmup", t.warmup);
  visit("lr", t.lr);
  visit("min-lr", t.min_lr);
  visit("decay-share", t.decay_share);
  visit("beta1", t.optimizer.beta1);
  visit("beta2", t.optimizer.beta2);
  visit("adam-epsilon", t.optimizer.eps);
  visit("weight-decay", t.optimizer.decay);
  visit("clip", t.optimizer.clip);
  visit("rounding", t.optimizer.rounding);
  visit("dropout", t.dropout);
  visit("chunk-loss", t.chunks.loss_rows);
  visit("chunk-mlp", t.chunks.mlp_rows);
  visit(chunked_nodes, t.chunks.nodes);
  visit(seed_key, t.seed);
  visit(data_seed_key, o.data_seed);
  visit("nondeterministic", t.nondeterministic);
  visit("data", o.data);
  visit("val-data", o.val_data);
  visit(data_format_key, o.data_format);
  visit(separate_key, o.separate);
  visit("tokenizer", o.tokenizer.name);
  visit("eval-every", o.eval_every);
  visit("eval-batches", o.eval_batches);
  visit("keep-best", o.keep_best);
  visit("patience", o.patience);
}

template <class T>
json to_setting(const T& setting) {
  if constexpr (std::is_enum_v<T>) {
    return name(setting);
  } else if constexpr (std::is_same_v<T, ModelConfig>) {
    return setting.to_json();
  } else if constexpr (std::is_same_v<T, std::vector<NodesInChunks>>) {
    return to_json(setting);
  } else if constexpr (std::is_same_v<T, std::optional<uint64_t>>) {
    return setting ? json(*setting) : json();
  } else {
    return setting;
  }
}

template <class T>
void from_setting(const JsonField& stored, T& setting) {
  if constexpr (std::is_enum_v<T>) {
    setting = stored.enumerator<T>();
  } else if constexpr (std::is_same_v<T, bool>) {
    setting = stored.boolean();
  } else if constexpr (std::is_integral_v<T>) {
    setting = stored.integer<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    setting = static_cast<T>(stored.number());
  } else if constexpr (std::is_same_v<T, std::string>) {
    setting = stored.string();
  } else if constexpr (std::is_same_v<T, ModelConfig>) {
    setting = model_config(stored);
  } else if constexpr (std::is_same_v<T, std::vector<NodesInChunks>>) {
    setting = nodes_in_chunks_from_json(stored);
  } else if constexpr (std::is_same_v<T, std::optional<uint64_t>>) {
    if (!stored.value().is_null()) setting = stored.integer<uint64_t>();
  } else {
    setting.clear();
    for (const JsonField& item : stored.items()) setting.push_back(item.string());
  }
}

const std::set<std::string> of_the_model{"layers",  "heads", "channels",
                                         "context", "vocab", model_numbers};

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
  json all = configuration(RunOptions{});
  // Without these, a run's losses cannot be told.
  for (const char* key : {model_numbers, "batch", "seq", "steps", "data"}) all.erase(key);
  // A run of a version without these has its data as that version read it.
  all[data_format_key] = name(DataFormat::by_name);
  all[separate_key] = false;
  stored.expect(stored.value().is_object(), "is not an object");
  all.update(stored.value());
  if (!all.contains(model_numbers)) all[model_numbers] = config_of_gpt2(stored);
  return {json{{"configuration", all}}, stored.file()};
}

// The settings, and those that the model's numbers are given by.
json with_shape(json all, const ModelConfig& model) {
  const ModelShape shape = model.shape();
  all["layers"] = shape.layers;
  all["heads"] = shape.heads.query;
  all["channels"] = shape.channels;
  all["context"] = shape.context;
  all["vocab"] = shape.vocabulary;
  // Of two files of the same model, one may say more than the other.
  all[model_numbers] = model.with("layers", shape.layers).to_json();
  return all;
}

// Whether a run may go on with another value than its own.
bool may_change(const RunOptions& o, const std::string& key, const json& ours, const json& theirs) {
  if (!o.given.contains(key)) return false;
  const bool is_fixed = key == "model" || key == data_format_key || key == separate_key;
  if (!is_fixed && settings_without_numbers().contains(key)) return true;
  return key == "steps" && theirs.is_number_integer() && ours > theirs;
}

// What a setting amounts to.
json effective(const json& settings, const std::string& key) {
  const json value = settings.value(key, json());
  const bool is_of_seed = key == data_seed_key && value.is_null();
  return is_of_seed ? settings.value(seed_key, json()) : value;
}

void refuse_other_settings(const RunOptions& o, const JsonField& settings) {
  const json all = with_shape(configuration(o), o.training.model);
  const json stored = with_shape(settings.value(), model_config(settings.member(model_numbers)));
  for (const auto& [key, value] : all.items()) {
    const json ours = effective(all, key), theirs = effective(stored, key);
    if (theirs == ours || may_change(o, key, ours, theirs)) continue;
    constexpr const char* remedy =
        "; leave the setting out to resume, or start a new run in another directory";
    check_setting(!o.given.contains(key), {key.c_str(), "out"}, "the run cannot be resumed with ",
                  key, " ", ours.dump(), ": it has ", theirs.dump(), remedy);
    check_setting(!of_the_model.contains(key) || !o.given.contains("model"), {"model", "out"},
                  "the run cannot be resumed with the model ", o.model, ", of ", key, " ",
                  ours.dump(), ": it has ", theirs.dump(), remedy);
  }
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

bool has_weights(const std::string& model) { return !model_preset(model).has_value(); }

TrainingConfig training_preset(const std::string& model) {
  TrainingConfig config;
  TrainingDefaults defaults;
  if (const auto preset = model_preset(model)) {
    config.model = preset->config;
    defaults = preset->defaults;
  } else {
    check_setting(path_exists(model), {"model"}, "the model '", model,
                  "' is neither a file or directory nor a preset; the presets are ",
                  list_of_presets());
    config.model = describe_model(model).config;
    defaults = config.model.defaults();
  }
  config.batch = defaults.batch;
  config.accumulate = defaults.accumulate;
  config.lr = defaults.lr;
  config.optimizer.beta2 = defaults.beta2;
  config.optimizer.decay = defaults.decay;
  config.chunks.loss_rows = defaults.loss_chunk;
  config.seq = std::min(config.model.shape().context, defaults.longest_row);
  config.min_lr = rounded_to_decimals(config.lr / 10);
  return config;
}

std::optional<Plan> read_given_plan(RunOptions& o) {
  if (o.plan.empty()) return {};
  StoredPlan stored = load_plan(o.plan);
  if (stored.made_for) adopt_chunks(o, *stored.made_for);
  return std::move(stored.plan);
}

json configuration(const RunOptions& o) {
  json all = json::object();
  for_each_setting(o,
                   [&](const char* key, const auto& setting) { all[key] = to_setting(setting); });
  return all;
}

void adopt(RunOptions& o, const JsonField& stored) {
  const JsonField whole = completed(stored);
  const JsonField theirs = whole.member("configuration");
  refuse_other_settings(o, theirs);
  const json ours = configuration(o);
  for_each_setting(o, [&](const char* key, auto& setting) {
    const JsonField field = theirs.member(key);
    if (may_change(o, key, ours.at(key), field.value())) return;
    setting = {};
    from_setting(field, setting);
  });
}

const std::set<std::string>& settings_without_numbers() {
  static const std::set<std::string> keys{"model",         "data",       "val-data",
                                          data_format_key, separate_key, "eval-every",
                                          "eval-batches",  "keep-best",  "patience"};
  return keys;
}

void check_run_settings(const RunOptions& o) {
  const auto check_count = [](const char* key, const char* words, int64_t n) {
    check_setting(n >= 0, {key}, words, " must be 0 or more, not ", n);
  };
  check_count("eval-every", "the steps between evaluations", o.eval_every);
  check_count("eval-batches", "the batches of an evaluation", o.eval_batches);
  check_count("patience", "the evaluations that a run goes on without a better one", o.patience);
  const bool evaluates = o.eval_every > 0 && o.eval_batches > 0;
  constexpr const char* of_no_evaluations =
      ", and the run has none between its steps; give the steps between them, or ";
  check_setting(evaluates || !o.keep_best, {"keep-best", "eval-every"},
                "the best model is found by evaluations", of_no_evaluations, "do not keep it");
  check_setting(evaluates || o.patience == 0, {"patience", "eval-every"},
                "patience counts evaluations", of_no_evaluations, "a patience of 0");
  check_setting(o.sample || o.sample_every == 0, {"sample-every", "no-sample"},
                "text samples every ", o.sample_every,
                " steps, and none at all; leave one of these out");
  check_setting(std::isfinite(o.checkpoint_minutes) && o.checkpoint_minutes >= 0,
                {"checkpoint-minutes"},
                "the minutes between checkpoints must be a finite number from 0 on, not ",
                o.checkpoint_minutes);
}

void check_names_differ(const RunOptions& o, const NamedFiles& others) {
  std::map<std::filesystem::path, const char*> keys;
  NamedFiles files{{"out", o.out},
                   {"log", o.log},
                   {"trace", o.trace},
                   {"save-plan", o.save_plan},
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
  const auto check_text = [](const char* key, const std::string& text) {
    check_setting(is_utf8(text), {key}, "'", text,
                  "' is not UTF-8, which a checkpoint or a report could not store; rename it");
  };
  check_text("model", o.model);
  check_text("tokenizer", o.tokenizer.name);
  for (const std::string& path : o.data) check_text("data", path);
  for (const std::string& path : o.val_data) check_text("val-data", path);
}

}  // namespace spool
