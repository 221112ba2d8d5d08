#include "spool/models/families/gpt2.h"

#include <cmath>

namespace spool {
namespace {

// The matrices that transformers stores as Conv1D does: (in, out).
bool is_conv1d(std::string_view name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
         name.ends_with("c_fc.weight");
}

}  // namespace

Gpt2::Gpt2(const Gpt2Config& config, DType dtype, Stream& stream)
    : Model((config.validate(), config), dtype, stream, config.context),
      config_(config),
      wte_(add_rows_of_tokens("wte.weight", normal(initial_deviation))),
      wpe_(parameters().add("wpe.weight", {config.context, config.channels},
                            normal(initial_deviation))) {
  for (int64_t i = 0; i < config.layers; ++i) add_block("h." + std::to_string(i) + ".");
  ln_f_weight_ = &parameters().add("ln_f.weight", {config.channels}, ones());
  ln_f_bias_ = &parameters().add("ln_f.bias", {config.channels}, zeros());
}

void Gpt2::add_block(const std::string& prefix) {
  const int64_t C = config_.channels;
  const InitialValues onto_residual =
      normal(initial_deviation / std::sqrt(2 * static_cast<float>(config_.layers)));
  const auto add = [&](const char* name, const Shape& shape,
                       const InitialValues& initial) -> Parameter& {
    return parameters().add(prefix + name, shape, initial);
  };
  blocks_.push_back(
      {.ln_1_weight = add("ln_1.weight", {C}, ones()),
       .ln_1_bias = add("ln_1.bias", {C}, zeros()),
       .attention_weight = add("attn.c_attn.weight", {3 * C, C}, normal(initial_deviation)),
       .attention_bias = add("attn.c_attn.bias", {3 * C}, zeros()),
       .projection_weight = add("attn.c_proj.weight", {C, C}, onto_residual),
       .projection_bias = add("attn.c_proj.bias", {C}, zeros()),
       .ln_2_weight = add("ln_2.weight", {C}, ones()),
       .ln_2_bias = add("ln_2.bias", {C}, zeros()),
       .fc_weight = add("mlp.c_fc.weight", {4 * C, C}, normal(initial_deviation)),
       .fc_bias = add("mlp.c_fc.bias", {4 * C}, zeros()),
       .fc_projection_weight = add("mlp.c_proj.weight", {C, 4 * C}, onto_residual),
       .fc_projection_bias = add("mlp.c_proj.bias", {C}, zeros())});
}

Var Gpt2::attend(const Var& qkv, const Var& first, const KeyValueLayer* cache) const {
  const Heads heads{.query = config_.heads, .key = config_.heads};
  if (cache) return cached_attention(qkv, *cache, heads, first);
  if (first) return attention(qkv, heads, first, sum_order());
  return attention(qkv, heads, Mask::causal, sum_order());
}

Var Gpt2::block(Var x, const Var& first, const Block& b, float p, const KeyValueLayer* cache) {
  const Tape::Scope scope(x.tape(), {.name = "block"});
  Var h = layer_norm(x, b.ln_1_weight, b.ln_1_bias, config_.epsilon);
  h = linear(h, b.attention_weight, b.attention_bias);
  h = attend(h, first, cache);
  h = linear(h, b.projection_weight, b.projection_bias);
  h = dropout(h, p);
  x = add(x, h);
  h = layer_norm(x, b.ln_2_weight, b.ln_2_bias, config_.epsilon);
  h = linear(h, b.fc_weight);
  h = gelu(h, b.fc_bias, config_.gelu);
  h = linear(h, b.fc_projection_weight, b.fc_projection_bias);
  h = dropout(h, p);
  return add(x, h);
}

Var Gpt2::embed(const Text& text, int64_t first_position) {
  if (text.positions) return add(embedding(text.tokens, wte_), embedding(text.positions, wpe_));
  return embedding(text.tokens, wte_, wpe_, first_position);
}

Var Gpt2::hidden(const Text& text, float p) {
  Var x = dropout(embed(text, /*first_position=*/0), p);
  for (const Block& b : blocks_) x = block(std::move(x), text.first, b, p);
  return last_norm(x);
}

Var Gpt2::hidden(const Text& text, KeyValueCache& cache) {
  constexpr float no_dropout = 0;
  Var x = embed(text, cache.length());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const KeyValueLayer layer = cache.layer(i);
    x = block(std::move(x), text.first, blocks_[i], no_dropout, &layer);
  }
  cache.advance(text.tokens.shape()[1]);
  return last_norm(x);
}

Var Gpt2::last_norm(const Var& x) {
  return layer_norm(x, *ln_f_weight_, *ln_f_bias_, config_.epsilon);
}

std::vector<StoredRows> Gpt2::layout(const Parameter& p) const {
  std::vector<StoredRows> rows = Model::layout(p);
  rows.front().conv1d = is_conv1d(p.name);
  return rows;
}

std::shared_ptr<Model> Gpt2Config::make(DType dtype, Stream& stream, int64_t) const {
  return std::make_shared<Gpt2>(*this, dtype, stream);
}

}  // namespace spool
