#include "spool/models/families/llama_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "spool/runtime/files/json.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr RopeFrequencies llama3(double factor) {
  return {
      .theta = 5e5,
      .scaling = Llama3Scaling{.factor = factor, .low = 1, .high = 4, .original_context = 8192}};
}

// What the models of a family have in common.
constexpr LlamaConfig llama_3_2{.vocabulary = 128256, .rope = llama3(32)};
constexpr LlamaConfig llama_3_1{.vocabulary = 128256, .rope = llama3(8), .tied = false};
constexpr LlamaConfig qwen2_5{.type = LlamaType::qwen2,
                              .vocabulary = 151936,
                              .epsilon = 1e-6,
                              .rope = {1e6, {}},
                              .qkv_bias = true};
constexpr LlamaConfig qwen3{.type = LlamaType::qwen3,
                            .vocabulary = 151936,
                            .epsilon = 1e-6,
                            .rope = {1e6, {}},
                            .qk_norm = true};
constexpr LlamaConfig smollm2{.vocabulary = 49152, .rope = {1e5, {}}};
constexpr LlamaConfig tinyllama{.vocabulary = 32000, .tied = false};

// The models that the hub has.
constexpr struct {
  std::string_view name;
  LlamaConfig family;
  int64_t layers, channels, inner;
  Heads heads;
  int64_t head, context;
} models_of_the_hub[] = {
    {"llama-3.2-1b", llama_3_2, 16, 2048, 8192, {32, 8}, 64, 131072},
    {"llama-3.2-3b", llama_3_2, 28, 3072, 8192, {24, 8}, 128, 131072},
    {"llama-3.1-8b", llama_3_1, 32, 4096, 14336, {32, 8}, 128, 131072},
    {"qwen2.5-0.5b", qwen2_5, 24, 896, 4864, {14, 2}, 64, 32768},
    {"qwen2.5-1.5b", qwen2_5, 28, 1536, 8960, {12, 2}, 128, 131072},
    {"qwen3-0.6b", qwen3, 28, 1024, 3072, {16, 8}, 128, 40960},
    {"qwen3-1.7b", qwen3, 28, 2048, 6144, {16, 8}, 128, 40960},
    {"smollm2-135m", smollm2, 30, 576, 1536, {9, 3}, 64, 8192},
    {"smollm2-360m", smollm2, 32, 960, 2560, {15, 5}, 64, 8192},
    {"tinyllama-1.1b", tinyllama, 22, 2048, 5632, {32, 4}, 64, 2048},
};

int64_t read_extent(const JsonField& config, const char* key,
                    std::optional<int64_t> absent = std::nullopt) {
  const auto field = config.present(key);
  if (!field && absent) return *absent;
  return (field ? *field : config.member(key)).integer<int64_t>(1, max_extent);
}

// Within these bounds, products and quotients of a few numbers are neither 0 nor infinite in f32.
double read_positive(const JsonField& object, const char* key) {
  constexpr double min = 1e-12, max = 1e12;
  const JsonField field = object.member(key);
  const double x = field.number();
  field.expect(x >= min && x <= max, excerpt(field.value()), " is not a number from ", min, " to ",
               max);
  return x;
}

// A field of models that Spool lacks: absent, or the one value that changes nothing.
void expect_fixed(const JsonField& object, const char* key, const json& supported) {
  const auto field = object.present(key);
  if (!field) return;
  field->expect(field->value() == supported, excerpt(field->value()), ", and only ",
                supported.dump(), " is supported");
}

void refuse_what_is_missing(const JsonField& config) {
  const std::pair<const char*, json> fixed[] = {
      {"attention_bias", false},      {"mlp_bias", false},
      {"hidden_act", "silu"},         {"use_sliding_window", false},
      {"partial_rotary_factor", 1.0}, {"pretraining_tp", 1}};
  for (const auto& [key, supported] : fixed) expect_fixed(config, key, supported);
  if (const auto field = config.present("quantization_config")) {
    field->refuse("quantized weights cannot be read; take the model in bf16, f16 or f32");
  }
  const auto layers = config.present("layer_types");
  if (!layers) return;
  for (const JsonField& layer : layers->items()) {
    layer.expect(layer.value() == "full_attention", excerpt(layer.value()),
                 ", and only \"full_attention\" is supported");
  }
}

// The member of `rope` or of config.json itself; the newer place first.
double read_theta(const JsonField& config, const std::optional<JsonField>& rope) {
  if (rope && rope->present("rope_theta")) return read_positive(*rope, "rope_theta");
  if (config.present("rope_theta")) return read_positive(config, "rope_theta");
  return RopeFrequencies{}.theta;
}

RopeFrequencies read_rope(const JsonField& config) {
  auto rope = config.present("rope_parameters");
  if (!rope) rope = config.present("rope_scaling");
  RopeFrequencies all{.theta = read_theta(config, rope)};
  if (!rope) return all;
  expect_fixed(*rope, "partial_rotary_factor", 1.0);
  auto type = rope->present("rope_type");
  if (!type) type = rope->present("type");
  if (!type || type->value() == "default") return all;
  type->expect(type->value() == "llama3", excerpt(type->value()),
               " is none of the types of rotary embedding that are supported: default, llama3");
  all.scaling =
      Llama3Scaling{.factor = read_positive(*rope, "factor"),
                    .low = read_positive(*rope, "low_freq_factor"),
                    .high = read_positive(*rope, "high_freq_factor"),
                    .original_context = read_positive(*rope, "original_max_position_embeddings")};
  rope->expect(static_cast<float>(all.scaling->low) < static_cast<float>(all.scaling->high),
               "low_freq_factor is not below high_freq_factor");
  return all;
}

}  // namespace

std::vector<ModelPreset> llama_presets() {
  std::vector<ModelPreset> all{
      {"llama-tiny", LlamaConfig{}, {.lr = 3e-3, .beta2 = 0.99, .batch = 8}}};
  for (const auto& model : models_of_the_hub) {
    LlamaConfig config = model.family;
    config.layers = model.layers;
    config.channels = model.channels;
    config.inner = model.inner;
    config.heads = model.heads;
    config.head = model.head;
    config.context = model.context;
    TrainingDefaults scratch{.lr = 3e-4, .longest_row = 2048};
    if (config.vocabulary > 65536) scratch.loss_chunk = config.defaults().loss_chunk;
    all.push_back({model.name, config, scratch});
  }
  return all;
}

std::string LlamaConfig::family() const {
  const char* const words[] = {"Llama", "Qwen2", "Qwen3"};
  return words[static_cast<size_t>(type)];
}

ModelShape LlamaConfig::shape() const {
  return {.layers = layers,
          .channels = channels,
          .context = context,
          .vocabulary = vocabulary,
          .heads = heads,
          .head = head};
}

int64_t LlamaConfig::parameters_of_layer() const {
  const int64_t packed = packed_heads() * head;
  return packed * channels + (qkv_bias ? packed : 0) + (qk_norm ? 2 * head : 0) +
         heads.query * head * channels + 3 * inner * channels + 2 * channels;
}

int64_t LlamaConfig::parameter_count() const {
  return (tied ? 1 : 2) * vocabulary * channels + layers * parameters_of_layer() + channels;
}

void LlamaConfig::validate() const {
  check_extents({{"layers", "number of layers", layers, max_layers},
                 {"heads", "number of heads", heads.query},
                 {"heads", "number of heads of keys", heads.key},
                 {"heads", "number of channels of a head", head},
                 {"channels", "number of channels", channels},
                 {"channels", "number of channels of an MLP", inner},
                 {"context", "context", context},
                 {"vocab", "vocabulary", vocabulary}});
  check_setting(heads.query * head <= max_extent, {"heads"}, heads.query, " heads of ", head,
                " channels are more than ", max_extent, " channels");
  check_setting(heads.query % heads.key == 0, {"heads"}, heads.query,
                " heads are not a multiple of the ", heads.key, " heads of keys");
  check_setting(head % 2 == 0, {"heads", "channels"}, "heads of ", head,
                " channels cannot be rotated: their number must be even");
  check_number_of_parameters(layers, parameters_of_layer());
}

void LlamaConfig::write(json& to) const {
  const std::pair<const char*, const char*> names[] = {
      {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};
  const auto& [model_type, architecture] = names[static_cast<size_t>(type)];
  to = {{"model_type", model_type},
        {"architectures", {architecture}},
        {"num_hidden_layers", layers},
        {"hidden_size", channels},
        {"intermediate_size", inner},
        {"num_attention_heads", heads.query},
        {"num_key_value_heads", heads.key},
        {"head_dim", head},
        {"max_position_embeddings", context},
        {"vocab_size", vocabulary},
        {"rms_norm_eps", epsilon},
        {"rope_theta", rope.theta},
        {"hidden_act", "silu"},
        {"tie_word_embeddings", tied}};
  if (type != LlamaType::qwen2) to["attention_bias"] = false;
  if (const auto& s = rope.scaling) {
    to["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", s->factor},
        {"low_freq_factor", s->low},
        {"high_freq_factor", s->high},
        {"original_max_position_embeddings", static_cast<int64_t>(s->original_context)}};
  }
}

// Keeps the proportions: an MLP is 8/3 as wide as the residual stream, in multiples of 64, and a
// key head serves the same number of query heads.
LlamaConfig LlamaConfig::with(std::string_view setting, int64_t n) const {
  LlamaConfig other = *this;
  if (setting == "layers") other.layers = n;
  if (setting == "context") other.context = n;
  if (setting == "vocab") other.vocabulary = n;
  if (setting == "channels") {
    other.channels = n;
    other.inner = round_up<int64_t>(n * inner / channels, 64);
    other.head = heads.query > 0 ? n / heads.query : 0;
  }
  if (setting == "heads" && n > 0) {
    const int64_t group = heads.query / heads.key;
    other.heads = {.query = n, .key = n % group == 0 ? n / group : n};
    other.head = channels / n;
  } else if (setting == "heads") {
    other.heads.query = n;
  }
  return other;
}

TrainingDefaults LlamaConfig::defaults() const {
  constexpr int64_t large_vocabulary = 65536, rows_of_logits = 512;
  return {.lr = 2e-5,
          .beta2 = 0.999,
          .decay = 0,
          .batch = 1,
          .accumulate = 8,
          .loss_chunk = vocabulary > large_vocabulary ? rows_of_logits : 0,
          .longest_row = 2048,
          .warmup = 0.03};
}

ModelConfig llama_config(const JsonField& config) {
  refuse_what_is_missing(config);
  LlamaConfig c{.type = config.member("model_type").enumerator<LlamaType>(),
                .layers = config.member("num_hidden_layers").integer<int64_t>(1, max_layers),
                .channels = read_extent(config, "hidden_size"),
                .inner = read_extent(config, "intermediate_size"),
                .context = read_extent(config, "max_position_embeddings"),
                .vocabulary = read_extent(config, "vocab_size")};
  c.heads.query = read_extent(config, "num_attention_heads");
  c.heads.key = read_extent(config, "num_key_value_heads", c.heads.query);
  const bool is_qwen3 = c.type == LlamaType::qwen3;
  constexpr int64_t head_of_qwen3 = 128;
  c.head = read_extent(config, "head_dim",
                       is_qwen3 ? head_of_qwen3 : std::max<int64_t>(1, c.channels / c.heads.query));
  constexpr double epsilon_of_transformers = 1e-6;
  c.epsilon = config.present("rms_norm_eps") ? read_positive(config, "rms_norm_eps")
                                             : epsilon_of_transformers;
  c.rope = read_rope(config);
  c.qkv_bias = c.type == LlamaType::qwen2;
  c.qk_norm = is_qwen3;
  c.tied = config.flag("tie_word_embeddings", false);
  try {
    c.validate();
  } catch (const Error& e) {
    config.refuse(e.what());
  }
  return ModelConfig(c).as_read(config.value());
}

}  // namespace spool
