#pragma once

// The hyperparameters of a model of the Llama family (llama.h): Llama 3, Qwen2, Qwen3, SmolLM2,
// TinyLlama; presets, and config.json as transformers writes it.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "spool/kernels/rope_table.h"
#include "spool/models/families/model_config.h"

namespace spool {

class JsonField;

// The field model_type; only the other fields change what is computed.
enum class LlamaType : uint8_t { llama, qwen2, qwen3 };
template <>
inline constexpr std::array enumerator_names<LlamaType>{"llama", "qwen2", "qwen3"};

struct LlamaConfig {
  LlamaType type = LlamaType::llama;
  int64_t layers = 4, channels = 192, inner = 512, context = 256, vocabulary = 256;
  Heads heads{.query = 6, .key = 2};
  int64_t head = 32;      // channels of a head
  double epsilon = 1e-5;  // of the norms
  RopeFrequencies rope = {};
  bool qkv_bias = false;  // as in Qwen2
  bool qk_norm = false;   // each head of q and k is normalised, as in Qwen3
  bool tied = true;       // the head is the token embedding

  // See ModelConfig.
  std::string family() const;
  ModelShape shape() const;
  int64_t parameters_of_layer() const, parameter_count() const;
  void validate() const;
  void write(nlohmann::json&) const;
  LlamaConfig with(std::string_view setting, int64_t) const;
  TrainingDefaults defaults() const;
  std::shared_ptr<Model> make(DType, Stream&, int64_t longest_row, const LoraConfig&) const;
  bool operator==(const LlamaConfig&) const = default;

  int64_t packed_heads() const { return heads.query + 2 * heads.key; }
};

// llama-tiny, and the models of the hub: llama-3.2-1b, qwen2.5-0.5b, ...
std::vector<ModelPreset> llama_presets();

// Reads and keeps a config.json of either generation (rope_theta and rope_scaling, or
// rope_parameters; torch_dtype or dtype).  A null field is absent.  Throws if a field is
// unsupported.
ModelConfig llama_config(const JsonField& config);

}  // namespace spool
