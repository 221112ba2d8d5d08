#include "spool/models/families/gpt2.h"

#include <cmath>

namespace spool {
namespace {

// Transformers stores these matrices as Conv1D, (in, out).
bool is_conv1d(std::string_view name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
         name.ends_with("c_fc.weight");
}

}  // namespace

Gpt2::Gpt2(const Gpt2Config& config, DType dtype, Stream& stream, const LoraConfig& lora)
    : Model((config.validate(), config), dtype, stream, config.context, lora),
      config_(config),
      wte_(add_rows_of_tokens("wte.weight", normal(initial_deviation))),
      wpe_(parameters().add("wpe.weight", {config.context, config.channels},
                            normal(initial_deviation))) {
  for (int64_t i = 0; i < config.layers; ++i) add_block("h." + std::to_string(i) + ".");
  norm_ = add_norm("ln_f");
}

Gpt2::Norm Gpt2::add_norm(const std::string& name) {
  const int64_t C = config_.channels;
  return {.weight = &parameters().add(name + ".weight", {C}, ones()),
          .bias = &parameters().add(name + ".bias", {C}, zeros())};
}

void Gpt2::add_block(const std::string& prefix) {
  const int64_t C = config_.channels;
  const InitialValues initial = normal(initial_deviation);
  const InitialValues onto_residual =
      normal(initial_deviation / std::sqrt(2 * static_cast<float>(config_.layers)));
  const auto add = [&](const char* name, const Shape& weight, const InitialValues& values) {
    return add_linear(prefix + name, weight, values, /*bias=*/true);
  };
  blocks_.push_back({.norm_1 = add_norm(prefix + "ln_1"),
                     .qkv = add("attn.c_attn", {3 * C, C}, initial),
                     .out = add("attn.c_proj", {C, C}, onto_residual),
                     .norm_2 = add_norm(prefix + "ln_2"),
                     .up = add("mlp.c_fc", {4 * C, C}, initial),
                     .down = add("mlp.c_proj", {C, 4 * C}, onto_residual)});
}

Var Gpt2::attend(const Var& qkv, const Var& first, const KeyValueLayer* cache) const {
  const Heads heads{.query = config_.heads, .key = config_.heads};
  if (cache) return cached_attention(qkv, *cache, heads, first);
  if (first) return attention(qkv, heads, first, sum_order());
  return attention(qkv, heads, Mask::causal, sum_order());
}

Var Gpt2::block(Var x, const Var& first, const Block& b, float p, const KeyValueLayer* cache) {
  const Tape::Scope scope(x.tape(), {.name = "block"});
  Var h = norm(x, b.norm_1);
  h = b.qkv(h);
  h = attend(h, first, cache);
  h = b.out(h);
  h = dropout(h, p);
  x = add(x, h);
  h = norm(x, b.norm_2);
  h = b.up.without_bias(h);
  h = gelu(h, *b.up.bias, config_.gelu);
  h = b.down(h);
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
  return norm(x, norm_);
}

Var Gpt2::hidden(const Text& text, KeyValueCache& cache) {
  constexpr float no_dropout = 0;
  Var x = embed(text, cache.length());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const KeyValueLayer layer = cache.layer(i);
    x = block(std::move(x), text.first, blocks_[i], no_dropout, &layer);
  }
  cache.advance(text.tokens.shape()[1]);
  return norm(x, norm_);
}

Var Gpt2::norm(const Var& x, const Norm& n) const {
  return layer_norm(x, *n.weight, *n.bias, config_.epsilon);
}

std::vector<StoredRows> Gpt2::base_layout(const Parameter& p) const {
  std::vector<StoredRows> rows = Model::base_layout(p);
  rows.front().conv1d = is_conv1d(p.name);
  return rows;
}

std::shared_ptr<Model> Gpt2Config::make(DType dtype, Stream& stream, int64_t,
                                        const LoraConfig& lora) const {
  return std::make_shared<Gpt2>(*this, dtype, stream, lora);
}

}  // namespace spool
