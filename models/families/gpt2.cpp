#include "spool/models/families/gpt2.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/normal.h"

namespace spool {
namespace {

constexpr std::array<std::pair<std::string_view, Gpt2Config>, 5> presets{{
    {"gpt2-tiny", {.layers = 4, .heads = 4, .channels = 192, .context = 128, .vocabulary = 256}},
    {"gpt2-124m", {}},
    {"gpt2-355m", {.layers = 24, .heads = 16, .channels = 1024}},
    {"gpt2-774m", {.layers = 36, .heads = 20, .channels = 1280}},
    {"gpt2-1558m", {.layers = 48, .heads = 25, .channels = 1600}},
}};

// Names end so where transformers stores a matrix as its Conv1D does.
bool is_conv1d(std::string_view name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
         name.ends_with("c_fc.weight");
}

class ConfigParser {
 public:
  ConfigParser(const nlohmann::json& json, const std::string& file) : json_(json), file_(file) {
    check_file(json.is_object(), file, "is not a JSON object, as the configuration of a model is");
  }

  Gpt2Config parse() const {
    Gpt2Config config{.layers = number("n_layer"),
                      .heads = number("n_head"),
                      .channels = number("n_embd"),
                      .context = number("n_positions"),
                      .vocabulary = number("vocab_size")};
    config.epsilon = epsilon();
    config.gelu = gelu();
    for (const auto& [field, value] : fixed(config)) {
      const nlohmann::json& given = json_.value(field, nlohmann::json());
      check_file(given.is_null() || given == value, file_, "field ", field, " is ",
                 given.dump(-1, ' ', /*ensure_ascii=*/true), ", and only ", value.dump(),
                 " is supported");
    }
    try {
      config.validate();
    } catch (const Error& e) {
      check_file(false, file_, e.what());
    }
    return config;
  }

 private:
  // Fields that change the model, and may be absent.
  static nlohmann::json::object_t fixed(const Gpt2Config& c) {
    return {{"model_type", "gpt2"},         {"n_inner", 4 * static_cast<double>(c.channels)},
            {"scale_attn_weights", true},   {"scale_attn_by_inverse_layer_idx", false},
            {"add_cross_attention", false}, {"tie_word_embeddings", true}};
  }

  int64_t number(const char* field) const {
    const auto at = json_.find(field);
    check_file(at != json_.end() && at->is_number_integer(), file_, "field ", field,
               " must be there and a whole number");
    check_file(!at->is_number_unsigned() || at->get<uint64_t>() <= INT64_MAX, file_, "field ",
               field, " is ", at->dump(), ", which is too large");
    return at->get<int64_t>();
  }

  double epsilon() const {
    const auto at = json_.find("layer_norm_epsilon");
    if (at == json_.end()) return Gpt2Config{}.epsilon;
    check_file(at->is_number() && at->get<double>() > 0 && at->get<double>() < 1, file_,
               "field layer_norm_epsilon must be a number between 0 and 1");
    return at->get<double>();
  }

  GeluForm gelu() const {
    const auto at = json_.find("activation_function");
    if (at == json_.end() || *at == "gelu_new" || *at == "gelu_pytorch_tanh") {
      return GeluForm::tanh;
    }
    check_file(*at == "gelu", file_, "field activation_function is ",
               at->dump(-1, ' ', /*ensure_ascii=*/true),
               ", and only gelu_new, gelu_pytorch_tanh and gelu are supported");
    return GeluForm::exact;
  }

  const nlohmann::json& json_;
  const std::string& file_;
};

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
  constexpr int64_t large = int64_t{1} << 24;
  const std::pair<const char*, int64_t> all[] = {{"layers", layers},
                                                 {"heads", heads},
                                                 {"channels", channels},
                                                 {"context", context},
                                                 {"vocab", vocabulary}};
  for (const auto& [name, n] : all) {
    check(n > 0 && n <= large, "--", name, " is ", n, ", and must be between 1 and ", large);
  }
  check(layers <= 10000, "--layers ", layers, " is more than 10000");
  check(channels % heads == 0, "--heads ", heads, " do not divide ", channels,
        " channels; choose heads that do, for example ", channels % 64 ? 1 : channels / 64);
}

nlohmann::json to_json(const Gpt2Config& c) {
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

Gpt2Config gpt2_config(const nlohmann::json& json, const std::string& file) {
  return ConfigParser(json, file).parse();
}

std::vector<Parameter*> Gpt2::Block::parameters() {
  return {&ln_1_weight,       &ln_1_bias,       &attention_weight,     &attention_bias,
          &projection_weight, &projection_bias, &ln_2_weight,          &ln_2_bias,
          &fc_weight,         &fc_bias,         &fc_projection_weight, &fc_projection_bias};
}

Gpt2::Gpt2(const Gpt2Config& config, DType dtype, Stream& stream)
    : config_(config), dtype_(dtype), stream_(stream) {
  config.validate();
  const int64_t C = config.channels;
  const auto make = [&](const std::string& name, const Shape& shape) {
    const char* interned = intern(name);
    const Label label{.name = interned, .purpose = Purpose::parameter};
    return Parameter{.name = interned, .data = Tensor({shape, dtype}, stream, label)};
  };
  wte_ = make("wte.weight", {config.padded_vocabulary(), C});
  wpe_ = make("wpe.weight", {config.context, C});
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string h = "h." + std::to_string(i) + ".";
    blocks_.push_back({.ln_1_weight = make(h + "ln_1.weight", {C}),
                       .ln_1_bias = make(h + "ln_1.bias", {C}),
                       .attention_weight = make(h + "attn.c_attn.weight", {3 * C, C}),
                       .attention_bias = make(h + "attn.c_attn.bias", {3 * C}),
                       .projection_weight = make(h + "attn.c_proj.weight", {C, C}),
                       .projection_bias = make(h + "attn.c_proj.bias", {C}),
                       .ln_2_weight = make(h + "ln_2.weight", {C}),
                       .ln_2_bias = make(h + "ln_2.bias", {C}),
                       .fc_weight = make(h + "mlp.c_fc.weight", {4 * C, C}),
                       .fc_bias = make(h + "mlp.c_fc.bias", {4 * C}),
                       .fc_projection_weight = make(h + "mlp.c_proj.weight", {C, 4 * C}),
                       .fc_projection_bias = make(h + "mlp.c_proj.bias", {C})});
  }
  ln_f_weight_ = make("ln_f.weight", {C});
  ln_f_bias_ = make("ln_f.bias", {C});
}

std::vector<Parameter*> Gpt2::parameters() {
  std::vector<Parameter*> all{&wte_, &wpe_};
  for (Block& b : blocks_) {
    for (Parameter* p : b.parameters()) all.push_back(p);
  }
  all.insert(all.end(), {&ln_f_weight_, &ln_f_bias_});
  return all;
}

void Gpt2::initialise(uint64_t seed) {
  const float joining = 0.02f / std::sqrt(2 * static_cast<float>(config_.layers));
  uint32_t number = 0;
  for (Parameter* p : parameters()) {
    const std::string_view name = p->name;
    if (p->data.shape().rank() == 2) {
      const float deviation = name.ends_with("c_proj.weight") ? joining : 0.02f;
      launch(NormalFill{.out = p->data, .deviation = deviation, .seed = seed, .tensor = number},
             stream_);
    } else {
      launch(Fill{.out = p->data, .value = name.ends_with("weight") ? 1.0f : 0.0f}, stream_);
    }
    ++number;
  }
  clear_padding();
}

void Gpt2::clear_padding() {
  const Range padding{config_.vocabulary, config_.padded_vocabulary()};
  if (padding.size() > 0) launch(Fill{.out = wte_.data.slice(padding)}, stream_);
}

Var Gpt2::block(Var x, Block& b, float p, const KeyValueLayer* cache) {
  const Tape::Scope scope(x.tape(), {.name = "block"});
  const Heads heads{.query = config_.heads, .key = config_.heads};
  Var h = layer_norm(x, b.ln_1_weight, b.ln_1_bias, config_.epsilon);
  h = linear(h, b.attention_weight, b.attention_bias);
  h = cache ? cached_attention(h, *cache, heads) : attention(h, heads);
  h = linear(h, b.projection_weight, b.projection_bias);
  h = dropout(h, p);
  x = add(x, h);
  h = layer_norm(x, b.ln_2_weight, b.ln_2_bias, config_.epsilon);
  h = linear(h, b.fc_weight, b.fc_bias);
  h = gelu(h, config_.gelu);
  h = linear(h, b.fc_projection_weight, b.fc_projection_bias);
  h = dropout(h, p);
  return add(x, h);
}

Var Gpt2::hidden(const Var& tokens, float p) {
  Var x = embedding(tokens, wte_, wpe_);
  x = dropout(x, p);
  for (Block& b : blocks_) x = block(std::move(x), b, p);
  return last_norm(x);
}

Var Gpt2::hidden(const Var& tokens, KeyValueCache& cache) {
  constexpr float no_dropout = 0;
  Var x = embedding(tokens, wte_, wpe_, cache.length());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const KeyValueLayer layer = cache.layer(i);
    x = block(std::move(x), blocks_[i], no_dropout, &layer);
  }
  cache.advance(tokens.shape()[1]);
  return last_norm(x);
}

Var Gpt2::last_norm(const Var& x) {
  return layer_norm(x, ln_f_weight_, ln_f_bias_, config_.epsilon);
}

KeyValueCache Gpt2::make_cache(int64_t B) const {
  const Shape each{B, config_.heads, config_.context, config_.channels / config_.heads};
  return {config_.layers, each, dtype_, stream_};
}

Var Gpt2::loss(const Var& tokens, const Var& targets, float p, Reduction reduction) {
  const Var x = hidden(tokens, p);
  return linear_cross_entropy(
      x, wte_, targets, {.reduction = reduction, .options = {.vocabulary = config_.vocabulary}});
}

Var Gpt2::logits(const Var& hidden) { return linear(hidden, wte_); }

std::vector<NamedTensor> stored(Gpt2& model, const std::vector<Tensor>& parallel,
                                const StoredAs& as) {
  const std::vector<Parameter*> parameters = model.parameters();
  check(parallel.size() == parameters.size(), "stored: ", parallel.size(), " tensors for ",
        parameters.size(), " parameters");
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < parallel.size(); ++i) {
    const std::string_view name = parameters[i]->name;
    const bool padded = name == "wte.weight";
    all.push_back(
        {.name = std::string(as.prefix).append(name),
         .tensor = padded ? parallel[i].slice({0, model.config().vocabulary}) : parallel[i],
         .transposed = as.conv1d && is_conv1d(name)});
  }
  return all;
}

std::vector<NamedTensor> stored_parameters(Gpt2& model, const StoredAs& as) {
  std::vector<Tensor> data;
  for (const Parameter* p : model.parameters()) data.push_back(p->data);
  return stored(model, data, as);
}

}  // namespace spool
