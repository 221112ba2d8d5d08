#include "spool/models/families/gpt2.h"

#include <cmath>

#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

constexpr float deviation = 0.02f;  // of initial matrices

// The matrices that transformers stores as Conv1D does: (in, out).
bool is_conv1d(std::string_view name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
         name.ends_with("c_fc.weight");
}

const Gpt2Config& validated(const Gpt2Config& config) {
  config.validate();
  return config;
}

}  // namespace

Gpt2::Gpt2(const Gpt2Config& config, DType dtype, Stream& stream)
    : config_(validated(config)),
      parameters_(stream, dtype),
      wte_(parameters_.add("wte.weight", {config.padded_vocabulary(), config.channels},
                           normal(deviation))),
      wpe_(parameters_.add("wpe.weight", {config.context, config.channels}, normal(deviation))) {
  for (int64_t i = 0; i < config.layers; ++i) add_block("h." + std::to_string(i) + ".");
  ln_f_weight_ = &parameters_.add("ln_f.weight", {config.channels}, ones());
  ln_f_bias_ = &parameters_.add("ln_f.bias", {config.channels}, zeros());
}

void Gpt2::add_block(const std::string& prefix) {
  const int64_t C = config_.channels;
  const InitialValues onto_residual =
      normal(deviation / std::sqrt(2 * static_cast<float>(config_.layers)));
  const auto add = [&](const char* name, const Shape& shape,
                       const InitialValues& initial) -> Parameter& {
    return parameters_.add(prefix + name, shape, initial);
  };
  blocks_.push_back({.ln_1_weight = add("ln_1.weight", {C}, ones()),
                     .ln_1_bias = add("ln_1.bias", {C}, zeros()),
                     .attention_weight = add("attn.c_attn.weight", {3 * C, C}, normal(deviation)),
                     .attention_bias = add("attn.c_attn.bias", {3 * C}, zeros()),
                     .projection_weight = add("attn.c_proj.weight", {C, C}, onto_residual),
                     .projection_bias = add("attn.c_proj.bias", {C}, zeros()),
                     .ln_2_weight = add("ln_2.weight", {C}, ones()),
                     .ln_2_bias = add("ln_2.bias", {C}, zeros()),
                     .fc_weight = add("mlp.c_fc.weight", {4 * C, C}, normal(deviation)),
                     .fc_bias = add("mlp.c_fc.bias", {4 * C}, zeros()),
                     .fc_projection_weight = add("mlp.c_proj.weight", {C, 4 * C}, onto_residual),
                     .fc_projection_bias = add("mlp.c_proj.bias", {C}, zeros())});
}

void Gpt2::initialise(uint64_t seed) {
  parameters_.initialise(seed);
  clear_padding();
}

void Gpt2::clear_padding() {
  const Range padding{config_.vocabulary, config_.padded_vocabulary()};
  if (padding.size() > 0) launch(Fill{.out = wte_.data.slice(padding)}, parameters_.stream());
}

Var Gpt2::block(Var x, const Block& b, float p, const KeyValueLayer* cache) {
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
  for (const Block& b : blocks_) x = block(std::move(x), b, p);
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
  return layer_norm(x, *ln_f_weight_, *ln_f_bias_, config_.epsilon);
}

KeyValueCache Gpt2::make_cache(int64_t B) const {
  const Shape each{B, config_.heads, config_.context, config_.channels / config_.heads};
  return {config_.layers, each, dtype(), parameters_.stream()};
}

Var Gpt2::loss(const Var& tokens, const Var& targets, float p, Reduction reduction) {
  const Var x = hidden(tokens, p);
  return linear_cross_entropy(
      x, wte_, targets, {.reduction = reduction, .options = {.vocabulary = config_.vocabulary}});
}

Var Gpt2::logits(const Var& hidden) { return linear(hidden, wte_); }

std::vector<NamedTensor> stored(Gpt2& model, const std::vector<Tensor>& parallel,
                                const StoredAs& as) {
  const Parameters& parameters = model.parameters();
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
