// config.json of the Llama family, as transformers 4 and 5 write it, and presets.

#include "spool/models/families/llama_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spool/models/families/families.h"
#include "spool/models/families/model.h"
#include "spool/runtime/files/json.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

ModelConfig read(const json& config) { return model_config({config, "config.json"}); }

// As transformers 4 writes Llama 3.2 1B, without fields that do not describe the model.
json older() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 128256})");
}

// The same as transformers 5 writes it.
json newer() {
  json config = older();
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = config["rope_theta"];
  config["dtype"] = config["torch_dtype"];
  for (const char* key : {"rope_scaling", "rope_theta", "torch_dtype"}) config.erase(key);
  return config;
}

json qwen2() {
  return json::parse(R"({"model_type": "qwen2", "hidden_act": "silu", "hidden_size": 896,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
    "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
    "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})");
}

TEST(LlamaConfig, PresetsHaveThePublishedNumbersOfParameters) {
  const std::pair<const char*, int64_t> totals[] = {
      {"llama-3.2-1b", 1235814400},   {"llama-3.2-3b", 3212749824}, {"llama-3.1-8b", 8030261248},
      {"qwen2.5-0.5b", 494032768},    {"qwen2.5-1.5b", 1543714304}, {"qwen3-0.6b", 596049920},
      {"qwen3-1.7b", 1720574976},     {"smollm2-135m", 134515008},  {"smollm2-360m", 361821120},
      {"tinyllama-1.1b", 1100048384}, {"gpt2-124m", 124439808}};
  for (const auto& [name, total] : totals) {
    const auto preset = model_preset(name);
    ASSERT_TRUE(preset) << name;
    EXPECT_EQ(preset->config.parameter_count(), total) << name;
    EXPECT_NO_THROW(preset->config.validate()) << name;
  }
}

TEST(LlamaConfig, IsReadInBothSpellings) {
  EXPECT_EQ(read(older()), model_preset("llama-3.2-1b")->config);
  EXPECT_EQ(read(newer()), model_preset("llama-3.2-1b")->config);
  EXPECT_EQ(read(qwen2()), model_preset("qwen2.5-0.5b")->config);
  json oldest = older();
  oldest["rope_scaling"]["type"] = "llama3";
  oldest["rope_scaling"].erase("rope_type");
  EXPECT_EQ(read(oldest), read(older()));
}

TEST(LlamaConfig, WritesWhatItReads) {
  for (const ModelPreset& preset : llama_presets()) {
    EXPECT_EQ(read(preset.config.to_json()), preset.config) << preset.name;
  }
  EXPECT_EQ(read(newer()).to_json(), newer());
}

TEST(LlamaConfig, TakesDefaultsForWhatIsAbsentOrNull) {
  json config = older();
  for (const char* key : {"head_dim", "num_key_value_heads", "rope_scaling", "rope_parameters",
                          "rope_theta", "tie_word_embeddings", "rms_norm_eps", "attention_bias",
                          "mlp_bias", "hidden_act", "use_sliding_window", "layer_types",
                          "quantization_config", "partial_rotary_factor", "pretraining_tp"}) {
    config[key] = nullptr;
    json without = config;
    without.erase(key);
    EXPECT_EQ(read(config), read(without)) << key;
  }
  const LlamaConfig c = *read(config).as<LlamaConfig>();
  EXPECT_EQ(c.epsilon, 1e-6);
  EXPECT_EQ(c.head, 64);
  EXPECT_EQ(c.heads.key, 32);
  EXPECT_EQ(c.rope, RopeFrequencies{});
  EXPECT_FALSE(c.tied);
  config = model_preset("qwen3-0.6b")->config.to_json();
  config.erase("head_dim");
  EXPECT_EQ(read(config).shape().head, 128);
}

TEST(LlamaConfig, RefusesEachFieldThatIsWrongByItsName) {
  const auto refused = [](const json& config, const std::string& field, const json& value) {
    SCOPED_TRACE(sentence(field, " is ", value.dump()));
    json wrong = config;
    wrong[field] = value;
    expect_error(ErrorKind::file, {"config.json: field ", field}, [&] { read(wrong); });
  };
  for (const char* field : {"hidden_size", "intermediate_size", "max_position_embeddings",
                            "num_attention_heads", "num_hidden_layers", "vocab_size"}) {
    for (const json& value : {json(0), json(-1), json(1.5), json("2"), json(nullptr), json(true),
                              json(INT64_MAX), json::array()}) {
      refused(older(), field, value);
    }
  }
  const std::pair<const char*, std::vector<json>> others[] = {
      {"model_type", {"mistral", 3}},
      {"head_dim", {0, "64", -2}},
      {"num_key_value_heads", {0, "8"}},
      {"attention_bias", {true}},
      {"mlp_bias", {true}},
      {"hidden_act", {"gelu", 3}},
      {"use_sliding_window", {true}},
      {"layer_types", {json::parse(R"(["full_attention", "sliding_attention"])"), 7}},
      {"quantization_config", {json::object()}},
      {"partial_rotary_factor", {0.5}},
      {"pretraining_tp", {2}},
      {"rms_norm_eps", {0, -1, "x", true, 1e-40, 1e300}},
      {"rope_theta", {0, -1, "x", json::array(), 1e-40, 1e300}},
      {"rope_scaling", {7, "llama3", json::array(), true}},
      {"rope_parameters", {7, "llama3", json::array(), true}},
      {"tie_word_embeddings", {1, "true"}}};
  for (const auto& [field, wrong] : others) {
    for (const json& value : wrong) refused(older(), field, value);
  }
}

TEST(LlamaConfig, RefusesAFileThatLacksAFieldOrIsNoObject) {
  for (const char* field : {"hidden_size", "intermediate_size", "max_position_embeddings",
                            "num_attention_heads", "num_hidden_layers", "vocab_size"}) {
    json config = older();
    config.erase(field);
    expect_error(ErrorKind::file, {"config.json: field ", field}, [&] { read(config); });
  }
  for (const json& config : {json(7), json("llama"), json::array(), json()}) {
    expect_error(ErrorKind::file, {"config.json"}, [&] { read(config); });
  }
}

TEST(LlamaConfig, RefusesMoreThanCanBeCounted) {
  constexpr int64_t max = int64_t{1} << 24;
  json config = older();
  config["num_attention_heads"] = max;
  expect_error(ErrorKind::file, {"16777216 heads of 64 channels"}, [&] { read(config); });
  config = older();
  config["hidden_size"] = config["intermediate_size"] = max;
  config["num_hidden_layers"] = 10000;
  expect_error(ErrorKind::file, {"10000 layers of ", "parameters"}, [&] { read(config); });
}

TEST(LlamaConfig, RefusesRotationsThatItCannotCompute) {
  for (const char* type : {"yarn", "linear", "dynamic", "longrope"}) {
    json config = older();
    config["rope_scaling"]["rope_type"] = type;
    expect_error(ErrorKind::file, {"rope_scaling.rope_type", type, "llama3"},
                 [&] { read(config); });
  }
  for (const char* field :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    json config = older();
    config["rope_scaling"].erase(field);
    expect_error(ErrorKind::file, {"rope_scaling", field}, [&] { read(config); });
    for (const json& wrong : {json(0), json(-1), json("8"), json(true), json(), json(1e300)}) {
      config["rope_scaling"][field] = wrong;
      expect_error(ErrorKind::file, {"rope_scaling", field}, [&] { read(config); });
    }
  }
  for (const double low : {4.0, 5.0, 4 - 1e-9}) {
    json config = older();
    config["rope_scaling"]["low_freq_factor"] = low;
    expect_error(ErrorKind::file, {"rope_scaling", "low_freq_factor"}, [&] { read(config); });
  }
  json part = newer();
  part["rope_parameters"]["partial_rotary_factor"] = 0.5;
  expect_error(ErrorKind::file, {"rope_parameters.partial_rotary_factor", "0.5"},
               [&] { read(part); });
  part["rope_parameters"]["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(read(part), read(newer()));
  json odd = older();
  odd["head_dim"] = 33;
  expect_error(ErrorKind::file, {"33", "even"}, [&] { read(odd); });
  json group = older();
  group["num_key_value_heads"] = 5;
  expect_error(ErrorKind::file, {"32 heads", "5 heads of keys"}, [&] { read(group); });
}

}  // namespace
}  // namespace spool::testing
