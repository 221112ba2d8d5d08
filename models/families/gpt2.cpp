#include "spool/models/families/gpt2.h"

#include <cmath>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/normal.h"

namespace spool {
namespace {

// The matrices that transformers stores as Conv1D does: (in, out).
bool is_conv1d(std::string_view name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
         name.ends_with("c_fc.weight");
}

}  // namespace

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
    const Name interned = name;
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
  constexpr float deviation = 0.02f;
  const float residual = deviation / std::sqrt(2 * static_cast<float>(config_.layers));
  uint32_t number = 0;
  for (Parameter* p : parameters()) {
    const std::string_view name = p->name;
    if (p->data.shape().rank() == 2) {
      launch(NormalFill{.out = p->data,
                        .deviation = name.ends_with("c_proj.weight") ? residual : deviation,
                        .seed = seed,
                        .tensor = number},
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
