#include "spool/models/families/gpt2_config.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "spool/runtime/files/json.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr std::array<std::pair<std::string_view, Gpt2Config>, 5> presets{{
    {"gpt2-tiny", {.layers = 4, .heads = 4, .channels = 192, .context = 128, .vocabulary = 256}},
    {"gpt2-124m", {}},
    {"gpt2-355m", {.layers = 24, .heads = 16, .channels = 1024}},
    {"gpt2-774m", {.layers = 36, .heads = 20, .channels = 1280}},
    {"gpt2-1558m", {.layers = 48, .heads = 25, .channels = 1600}},
}};

constexpr int64_t max_layers = 10'000, max_extent = int64_t{1} << 24;

double read_epsilon(const JsonField& config) {
  const auto field = config.find("layer_norm_epsilon");
  if (!field) return Gpt2Config{}.epsilon;
  const double epsilon = field->number();
  field->expect(0 < epsilon && epsilon < 1, epsilon, " is not between 0 and 1");
  return epsilon;
}

GeluForm read_gelu(const JsonField& config) {
  const auto field = config.find("activation_function");
  if (!field) return GeluForm::tanh;
  const json& form = field->value();
  if (form == "gelu_new" || form == "gelu_pytorch_tanh") return GeluForm::tanh;
  field->expect(form == "gelu", excerpt(form), " is none of gelu_new, gelu_pytorch_tanh, gelu");
  return GeluForm::exact;
}

// Fields that change what the model computes; each is absent, null, or the one supported value.
void check_fixed_fields(const JsonField& config, int64_t channels) {
  const std::pair<const char*, json> fixed[] = {
      {"model_type", "gpt2"},         {"n_inner", 4 * static_cast<double>(channels)},
      {"scale_attn_weights", true},   {"scale_attn_by_inverse_layer_idx", false},
      {"add_cross_attention", false}, {"tie_word_embeddings", true}};
  for (const auto& [key, supported] : fixed) {
    const auto field = config.find(key);
    if (!field || field->is_null()) continue;
    field->expect(field->value() == supported, excerpt(field->value()), ", and only ",
                  supported.dump(), " is supported");
  }
}

}  // namespace

std::vector<std::string_view> gpt2_presets() {
  std::vector<std::string_view> names;
  for (const auto& [name, config] : presets) names.push_back(name);
  return names;
}

std::optional<Gpt2Config> gpt2_preset(std::string_view wanted) {
  for (const auto& [name, config] : presets) {
    if (name == wanted) return config;
  }
  return {};
}

int64_t Gpt2Config::parameter_count() const {
  return (vocabulary + context + 2) * channels + layers * (12 * channels + 13) * channels;
}

void Gpt2Config::validate() const {
  const struct {
    const char* setting;
    const char* words;
    int64_t value, max;
  } limits[] = {{"layers", "number of layers", layers, max_layers},
                {"heads", "number of heads", heads, max_extent},
                {"channels", "number of channels", channels, max_extent},
                {"context", "context", context, max_extent},
                {"vocab", "vocabulary", vocabulary, max_extent}};
  for (const auto& [setting, words, value, max] : limits) {
    check_setting(value > 0 && value <= max, {setting}, "the ", words, " is ", value,
                  ", and must be between 1 and ", max);
  }
  check_setting(channels % heads == 0, {"heads"}, heads, " heads do not divide ", channels,
                " channels; choose heads that do, for example ", channels % 64 ? 1 : channels / 64);
}

Gpt2Config gpt2_config(const JsonField& config) {
  const auto read_extent = [&](const char* key) {
    return config.member(key).integer<int64_t>(1, max_extent);
  };
  Gpt2Config c{.layers = config.member("n_layer").integer<int64_t>(1, max_layers),
               .heads = read_extent("n_head"),
               .channels = read_extent("n_embd"),
               .context = read_extent("n_positions"),
               .vocabulary = read_extent("vocab_size")};
  c.epsilon = read_epsilon(config);
  c.gelu = read_gelu(config);
  check_fixed_fields(config, c.channels);
  try {
    c.validate();
  } catch (const Error& e) {
    config.member("n_head").refuse(e.what());
  }
  return c;
}

json to_json(const Gpt2Config& c) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_embd", c.channels},
          {"n_positions", c.context},
          {"n_ctx", c.context},
          {"vocab_size", c.vocabulary},
          {"layer_norm_epsilon", c.epsilon},
          {"activation_function", c.gelu == GeluForm::tanh ? "gelu_new" : "gelu"},
          {"tie_word_embeddings", true}};
}

std::optional<int32_t> end_of_text_of(const JsonField& config, int64_t vocabulary) {
  const auto field = config.find("eos_token_id");
  const bool is_token = field && field->value().is_number_unsigned() && field->value() < vocabulary;
  return is_token ? std::optional(field->value().get<int32_t>()) : std::nullopt;
}

std::string format_config(const Gpt2Config& config, std::optional<int32_t> end_of_text) {
  json j = to_json(config);
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    j[key] = end_of_text ? json(*end_of_text) : json();
  }
  return j.dump(2) + "\n";
}

}  // namespace spool
