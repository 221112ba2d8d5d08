#include "spool/models/families/llama.h"

#include <cmath>

namespace spool {
namespace {

// The tensors in files of a packed parameter, which has their rows one below the other.
std::vector<StoredRows> split_rows(const std::string& prefix, const std::string& suffix,
                                   std::initializer_list<std::pair<const char*, int64_t>> parts) {
  std::vector<StoredRows> all;
  int64_t row = 0;
  for (const auto& [name, rows] : parts) {
    std::string full = prefix;
    full.append(name).append(suffix);
    all.push_back({.name = std::move(full), .rows = {row, row + rows}});
    row += rows;
  }
  return all;
}

// Does nothing in a rehearsal, which has no values.
void set_rotations(const Tensor& table, const RopeFrequencies& frequencies) {
  if (table.stream().device().type == DeviceType::meta) return;
  const int64_t rows = table.shape()[0], D = table.shape()[1];
  if (table.dtype() == DType::f64) {
    write<double>(table, rope_table<double>(rows, D, frequencies));
  } else {
    write<float>(table, rope_table<float>(rows, D, frequencies));
  }
}

}  // namespace

Llama::Llama(const LlamaConfig& config, DType dtype, Stream& stream, int64_t longest_row,
             const LoraConfig& lora)
    : Model((config.validate(), config), dtype, stream, longest_row, lora),
      config_(config),
      embedding_(add_rows_of_tokens("model.embed_tokens.weight", normal(initial_deviation))),
      rotations_({Shape{longest_row, config.head}, accumulator(dtype)}, stream,
                 {.name = "rotations", .purpose = Purpose::input}) {
  for (int64_t i = 0; i < config.layers; ++i) {
    add_block("model.layers." + std::to_string(i) + ".");
  }
  norm_ = &parameters().add("model.norm.weight", {config.channels}, ones());
  head_ =
      config.tied ? &embedding_ : &add_rows_of_tokens("lm_head.weight", normal(initial_deviation));
  set_rotations(rotations_, config.rope);
}

void Llama::add_block(const std::string& prefix) {
  const LlamaConfig& c = config_;
  const int64_t packed = c.packed_heads() * c.head;
  const InitialValues onto_residual =
      normal(initial_deviation / std::sqrt(2 * static_cast<float>(c.layers)));
  const auto add_norm = [&](const char* name, int64_t channels) {
    return &parameters().add(prefix + name + ".weight", {channels}, ones());
  };
  const auto add = [&](const char* name, const Shape& weight, const InitialValues& initial,
                       bool bias = false) {
    return add_linear(prefix + name, weight, initial, bias);
  };
  Block b;
  b.norm_1 = add_norm("input_layernorm", c.channels);
  b.qkv = add("self_attn.qkv_proj", {packed, c.channels}, normal(initial_deviation), c.qkv_bias);
  if (c.qk_norm) {
    b.q_norm = add_norm("self_attn.q_norm", c.head);
    b.k_norm = add_norm("self_attn.k_norm", c.head);
  }
  b.out = add("self_attn.o_proj", {c.channels, c.heads.query * c.head}, onto_residual);
  b.norm_2 = add_norm("post_attention_layernorm", c.channels);
  b.gate_up = add("mlp.gate_up_proj", {2 * c.inner, c.channels}, normal(initial_deviation));
  b.down = add("mlp.down_proj", {c.channels, c.inner}, onto_residual);
  blocks_.push_back(b);
}

Var Llama::norm(const Var& x, Parameter& weight) const {
  return rms_norm(x, weight, config_.epsilon);
}

Var Llama::attend(const Var& x, const Pass& pass, const Block& b, const KeyValueLayer* cache) {
  const Heads heads = config_.heads;
  const Var &positions = pass.text.positions, &first = pass.text.first;
  Var h = b.qkv(x);
  if (b.q_norm) h = head_norm(h, *b.q_norm, *b.k_norm, heads, config_.epsilon);
  h = positions ? rope(h, pass.rotations, heads, positions)
                : rope(h, pass.rotations, heads, cache ? cache->position : 0);
  if (cache) {
    h = cached_attention(h, *cache, heads, first);
  } else {
    h = first ? attention(h, heads, first, sum_order())
              : attention(h, heads, Mask::causal, sum_order());
  }
  return b.out(h);
}

Var Llama::block(Var x, const Pass& pass, const Block& b, const KeyValueLayer* cache) {
  const Tape::Scope scope(x.tape(), {.name = "block"});
  x = add(x, dropout(attend(norm(x, *b.norm_1), pass, b, cache), pass.dropout));
  const Var h = swiglu(b.gate_up(norm(x, *b.norm_2)));
  return add(x, dropout(b.down(h), pass.dropout));
}

Var Llama::hidden(const Text& text, float p) {
  Var x = dropout(embedding(text.tokens, embedding_), p);
  const Pass pass{.text = text, .rotations = text.tokens.tape().input(rotations_), .dropout = p};
  for (const Block& b : blocks_) x = block(std::move(x), pass, b);
  return norm(x, *norm_);
}

Var Llama::hidden(const Text& text, KeyValueCache& cache) {
  Var x = embedding(text.tokens, embedding_);
  const Pass pass{.text = text, .rotations = text.tokens.tape().input(rotations_)};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const KeyValueLayer layer = cache.layer(i);
    x = block(std::move(x), pass, blocks_[i], &layer);
  }
  cache.advance(text.tokens.shape()[1]);
  return norm(x, *norm_);
}

std::vector<StoredRows> Llama::base_layout(const Parameter& p) const {
  const LlamaConfig& c = config_;
  const std::string name(std::string_view(p.name));
  const auto parts_of = [&](const std::string& packed, auto parts) -> std::vector<StoredRows> {
    const size_t at = name.find(packed);
    return split_rows(name.substr(0, at), name.substr(at + packed.size()), parts);
  };
  using Parts = std::initializer_list<std::pair<const char*, int64_t>>;
  const int64_t keys = c.heads.key * c.head;
  if (name.find("qkv_proj") != std::string::npos) {
    const Parts parts{{"q_proj", c.heads.query * c.head}, {"k_proj", keys}, {"v_proj", keys}};
    return parts_of("qkv_proj", parts);
  }
  if (name.find("gate_up_proj") != std::string::npos) {
    const Parts parts{{"gate_proj", c.inner}, {"up_proj", c.inner}};
    return parts_of("gate_up_proj", parts);
  }
  return Model::base_layout(p);
}

std::shared_ptr<Model> LlamaConfig::make(DType dtype, Stream& stream, int64_t longest_row,
                                         const LoraConfig& lora) const {
  return std::make_shared<Llama>(*this, dtype, stream, longest_row, lora);
}

}  // namespace spool
