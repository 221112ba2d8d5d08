#include "spool/models/families/gpt2_config.h"

#include <array>
#include <nlohmann/json.hpp>

#include "spool/runtime/files/json.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr std::array<std::pair<std::string_view, Gpt2Config>, 5> published{{
    {"gpt2-tiny", {.layers = 4, .heads = 4, .channels = 192, .context = 128, .vocabulary = 256}},
    {"gpt2-124m", {}},
    {"gpt2-355m", {.layers = 24, .heads = 16, .channels = 1024}},
    {"gpt2-774m", {.layers = 36, .heads = 20, .channels = 1280}},
    {"gpt2-1558m", {.layers = 48, .heads = 25, .channels = 1600}},
}};

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

// Fields that change the model: each must be absent, null, or the one supported value.
void check_fixed_fields(const JsonField& config, int64_t channels) {
  const std::pair<const char*, json> fixed[] = {
      {"model_type", "gpt2"},         {"n_inner", 4 * static_cast<double>(channels)},
      {"scale_attn_weights", true},   {"scale_attn_by_inverse_layer_idx", false},
      {"add_cross_attention", false}, {"tie_word_embeddings", true}};
  for (const auto& [key, supported] : fixed) {
    const auto field = config.present(key);
    if (!field) continue;
    field->expect(field->value() == supported, excerpt(field->value()), ", and only ",
                  supported.dump(), " is supported");
  }
}

}  // namespace

std::vector<ModelPreset> gpt2_presets() {
  std::vector<ModelPreset> all;
  for (const auto& [name, config] : published) {
    TrainingDefaults defaults{.lr = 2e-4};
    if (name == "gpt2-tiny") defaults = {.lr = 3e-3, .beta2 = 0.99, .batch = 8};
    if (name == "gpt2-124m") defaults.lr = 6e-4;
    if (name == "gpt2-355m") defaults.lr = 3e-4;
    if (name == "gpt2-774m") defaults.lr = 2.5e-4;
    all.push_back({name, config, defaults});
  }
  return all;
}

std::optional<Gpt2Config> gpt2_preset(std::string_view wanted) {
  for (const auto& [name, config] : published) {
    if (name == wanted) return config;
  }
  return {};
}

ModelShape Gpt2Config::shape() const {
  return {.layers = layers,
          .channels = channels,
          .context = context,
          .vocabulary = vocabulary,
          .heads = {.query = heads, .key = heads},
          .head = heads > 0 ? channels / heads : 0};
}

int64_t Gpt2Config::parameters_of_layer() const { return (12 * channels + 13) * channels; }

int64_t Gpt2Config::parameter_count() const {
  return (vocabulary + context + 2) * channels + layers * parameters_of_layer();
}

void Gpt2Config::validate() const {
  check_extents({{"layers", "number of layers", layers, max_layers},
                 {"heads", "number of heads", heads},
                 {"channels", "number of channels", channels},
                 {"context", "context", context},
                 {"vocab", "vocabulary", vocabulary}});
  check_setting(channels % heads == 0, {"heads"}, heads, " heads do not divide ", channels,
                " channels; choose heads that do, for example ", channels % 64 ? 1 : channels / 64);
  check_number_of_parameters(layers, parameters_of_layer());
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

void Gpt2Config::write(json& to) const {
  to = {{"model_type", "gpt2"},
        {"architectures", {"GPT2LMHeadModel"}},
        {"n_layer", layers},
        {"n_head", heads},
        {"n_embd", channels},
        {"n_positions", context},
        {"n_ctx", context},
        {"vocab_size", vocabulary},
        {"layer_norm_epsilon", epsilon},
        {"activation_function", gelu == GeluForm::tanh ? "gelu_new" : "gelu"},
        {"tie_word_embeddings", true}};
}

Gpt2Config Gpt2Config::with(std::string_view setting, int64_t n) const {
  Gpt2Config other = *this;
  const std::pair<std::string_view, int64_t&> settings[] = {{"layers", other.layers},
                                                            {"heads", other.heads},
                                                            {"channels", other.channels},
                                                            {"context", other.context},
                                                            {"vocab", other.vocabulary}};
  for (const auto& [name, value] : settings) {
    if (name == setting) value = n;
  }
  return other;
}

}  // namespace spool
