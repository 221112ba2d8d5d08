#include "spool/models/training/run_options.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "spool/models/families/model_file.h"
#include "spool/planner/plan_file.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

using nlohmann::json;

std::string list_of_presets() {
  std::string list;
  for (const std::string_view name : gpt2_presets()) {
    list += sentence(list.empty() ? "" : ", ", name);
  }
  return list;
}

// Visits every setting of the configuration with its key.
template <class Options, class Visit>
void for_each_setting(Options& o, const Visit& visit) {
  auto& t = o.training;
  visit("model", o.model);
  visit("layers", t.model.layers);
  visit("heads", t.model.heads);
  visit("channels", t.model.channels);
  visit("context", t.model.context);
  visit("vocab", t.model.vocabulary);
  visit("epsilon", t.model.epsilon);
  visit("gelu", t.model.gelu);
  visit("dtype", t.dtype);
  visit("batch", t.batch);
  visit("seq", t.seq);
  visit("accumulate", t.accumulate);
  visit("steps", t.steps);
  visit("warmup", t.warmup);
  visit("lr", t.lr);
  visit("min-lr", t.min_lr);
  visit("beta2", t.optimizer.beta2);
  visit("weight-decay", t.optimizer.decay);
  visit("clip", t.optimizer.clip);
  visit("rounding", t.optimizer.rounding);
  visit("dropout", t.dropout);
  visit("chunk-loss", t.loss_chunk);
  visit("chunk-mlp", t.mlp_chunk);
  visit("seed", t.seed);
  visit("data", o.data);
  visit("val-data", o.val_data);
  visit("tokenizer", o.tokenizer.name);
}

template <class T>
json to_setting(const T& setting) {
  if constexpr (std::is_enum_v<T>) {
    return name(setting);
  } else {
    return setting;
  }
}

template <class T>
void from_setting(const JsonField& stored, T& setting) {
  if constexpr (std::is_enum_v<T>) {
    setting = stored.enumerator<T>();
  } else if constexpr (std::is_integral_v<T>) {
    setting = stored.integer<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    setting = static_cast<T>(stored.number());
  } else if constexpr (std::is_same_v<T, std::string>) {
    setting = stored.string();
  } else {
    setting.clear();
    for (const JsonField& item : stored.items()) setting.push_back(item.string());
  }
}

// A setting that runs of earlier versions lack, and which is 0 in them.
bool may_be_missing(std::string_view key) { return key == "chunk-mlp"; }

void refuse_other_settings(const RunOptions& o, const json& stored, const std::string& file) {
  const std::set<std::string> of_the_model{"layers", "heads",   "channels", "context",
                                           "vocab",  "epsilon", "gelu"};
  const json all = configuration(o);
  for (const auto& [key, ours] : all.items()) {
    const bool is_stored = stored.is_object() && stored.contains(key);
    check_file(is_stored || may_be_missing(key), file, "field configuration.", key,
               " is missing; this is not a checkpoint of this version of Spool");
    const json theirs = is_stored ? stored.at(key) : json(0);
    if (theirs == ours) continue;
    constexpr const char* remedy =
        "; leave the setting out to resume, or start a new run in another directory";
    check_setting(!o.given.contains(key), {key.c_str(), "out"}, "the run cannot be resumed with ",
                  key, " ", ours.dump(), ": it has ", theirs.dump(), remedy);
    check_setting(!of_the_model.contains(key) || !o.given.contains("model"), {"model", "out"},
                  "the run cannot be resumed with the model ", o.model, ", of ", key, " ",
                  ours.dump(), ": it has ", theirs.dump(), remedy);
  }
}

}  // namespace

bool has_weights(const std::string& model) { return !gpt2_preset(model).has_value(); }

TrainingConfig training_preset(const std::string& model) {
  TrainingConfig config;
  if (const auto shape = gpt2_preset(model)) {
    config.model = *shape;
    if (model == "gpt2-tiny") {
      config.batch = 8;
      config.lr = 3e-3;
      config.optimizer.beta2 = 0.99;
    } else if (model != "gpt2-124m") {
      config.lr = model == "gpt2-355m" ? 3e-4 : model == "gpt2-774m" ? 2.5e-4 : 2e-4;
    }
  } else {
    check_setting(std::filesystem::exists(model), {"model"}, "the model '", model,
                  "' is neither a file or directory nor a preset; the presets are ",
                  list_of_presets());
    config.model = ModelFile(model).config();
    config.lr = 5e-5;  // small: trained weights are adjusted, not lost
  }
  config.seq = config.model.context;
  config.min_lr = config.lr / 10;
  return config;
}

RunRequest request_of(const RunOptions& o) {
  const auto is_given = [&](const char* key) { return o.given.contains(key); };
  const bool has_plan = !o.plan.empty();
  const Choices choose{
      .placement = !has_plan && !is_given("recompute") && !is_given("offload"),
      .loss_chunk = !o.resume && !is_given("chunk-loss"),
      .mlp_chunk = !o.resume && !is_given("chunk-mlp"),
  };
  return {.policy = o.policy,
          .plan = has_plan ? std::optional(load_plan(o.plan)) : std::nullopt,
          .choose = choose,
          .graph = o.graph,
          .spill_directory = o.spill_directory};
}

json configuration(const RunOptions& o) {
  json all = json::object();
  for_each_setting(o,
                   [&](const char* key, const auto& setting) { all[key] = to_setting(setting); });
  return all;
}

void adopt(RunOptions& o, const JsonField& stored) {
  refuse_other_settings(o, stored.value(), stored.file());
  for_each_setting(o, [&](const char* key, auto& setting) {
    setting = {};
    const auto field = may_be_missing(key) ? stored.find(key) : stored.member(key);
    if (field) from_setting(*field, setting);
  });
}

}  // namespace spool
