#include "spool/models/families/families.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/llama_config.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

struct Family {
  std::vector<std::string_view> model_types;
  std::vector<ModelPreset> (*presets)();
  ModelConfig (*read)(const JsonField& config);
};

// Transformers does not recognise a model without a type.
ModelConfig read_gpt2(const JsonField& config) {
  nlohmann::json fields = config.value();
  if (!fields.contains("model_type") || fields["model_type"].is_null()) {
    fields["model_type"] = "gpt2";
  }
  return ModelConfig(gpt2_config(config)).as_read(std::move(fields));
}

const std::vector<Family>& all_families() {
  static const std::vector<Family> all{
      {{"gpt2"}, gpt2_presets, read_gpt2},
      {{"llama", "qwen2", "qwen3"}, llama_presets, llama_config},
  };
  return all;
}

std::string list_of_types() {
  std::string list;
  for (const Family& family : all_families()) {
    for (const std::string_view type : family.model_types) {
      list += sentence(list.empty() ? "" : ", ", type);
    }
  }
  return list;
}

}  // namespace

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> all = [] {
    std::vector<ModelPreset> presets;
    for (const Family& family : all_families()) {
      const std::vector<ModelPreset> own = family.presets();
      presets.insert(presets.end(), own.begin(), own.end());
    }
    return presets;
  }();
  return all;
}

std::optional<ModelPreset> model_preset(std::string_view name) {
  const auto found = std::ranges::find(model_presets(), name, &ModelPreset::name);
  return found == model_presets().end() ? std::nullopt : std::optional(*found);
}

std::string list_of_presets() {
  std::string list;
  for (const ModelPreset& preset : model_presets()) {
    list += sentence(list.empty() ? "" : ", ", preset.name);
  }
  return list;
}

// Early GPT-2 files have no model_type.
ModelConfig model_config(const JsonField& config) {
  const auto field = config.present("model_type");
  if (!field) {
    const bool is_early = config.find("n_layer") || config.find("n_embd") || config.find("n_head");
    config.expect(is_early, "has no model_type, and none of GPT-2's fields; say which it is of ",
                  list_of_types());
    return read_gpt2(config);
  }
  for (const Family& family : all_families()) {
    for (const std::string_view type : family.model_types) {
      if (field->value() == type) return family.read(config);
    }
  }
  field->refuse(excerpt(field->value()), " is none of ", list_of_types());
}

}  // namespace spool
