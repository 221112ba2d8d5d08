#pragma once

// The hyperparameters of a GPT-2, its presets, and its config.json as transformers writes it.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/kernels/gelu.h"
#include "spool/models/families/model_config.h"

namespace spool {

class JsonField;

struct Gpt2Config {
  int64_t layers = 12, heads = 12, channels = 768, context = 1024, vocabulary = 50257;
  double epsilon = 1e-5;  // of the layer norms
  GeluForm gelu = GeluForm::tanh;

  // See ModelConfig.
  std::string family() const { return "GPT-2"; }
  ModelShape shape() const;
  int64_t padded_vocabulary() const { return shape().padded_vocabulary(); }
  int64_t parameters_of_layer() const, parameter_count() const;
  void validate() const;
  void write(nlohmann::json&) const;
  Gpt2Config with(std::string_view setting, int64_t) const;
  TrainingDefaults defaults() const { return {}; }
  std::shared_ptr<Model> make(DType, Stream&, int64_t longest_row, const LoraConfig&) const;
  bool operator==(const Gpt2Config&) const = default;
};

// gpt2-tiny, gpt2-124m, gpt2-355m, gpt2-774m, gpt2-1558m.
std::vector<ModelPreset> gpt2_presets();
std::optional<Gpt2Config> gpt2_preset(std::string_view name);

// Reads every field of config.json that changes what the model computes; throws if one is
// unsupported.
Gpt2Config gpt2_config(const JsonField& config);

}  // namespace spool
