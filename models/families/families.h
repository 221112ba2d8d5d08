#pragma once

// Lists the families of models, and finds one by preset or config.json (docs/adding-a-model.md).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/models/families/model_config.h"

namespace spool {

class JsonField;

// All presets, family by family, from small to large.
const std::vector<ModelPreset>& model_presets();
// Nothing if there is no preset of this name.
std::optional<ModelPreset> model_preset(std::string_view name);
// "gpt2-tiny, gpt2-124m, ..."
std::string list_of_presets();

// Reads config.json as transformers writes it: every field that changes what the model computes.
// Throws if one is unsupported, or no family has the model_type.
ModelConfig model_config(const JsonField& config);

}  // namespace spool
