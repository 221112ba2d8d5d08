#pragma once

// The Llama family (Touvron et al. 2023; Llama 3, Qwen2, Qwen3, SmolLM2, TinyLlama): a token
// embedding; blocks of causal attention with rotary positions (Su et al. 2021) and an MLP with a
// SiLU gate (Shazeer 2020), each after an RMS norm and added to the residual stream; a final RMS
// norm; and a head, which may be the token embedding.
//
// The weights of queries, keys and values are one parameter, and those of gate and up are one.  In
// files they are separate.

#include <string>
#include <vector>

#include "spool/models/families/llama_config.h"
#include "spool/models/families/model.h"

namespace spool {

class Llama final : public Model {
 public:
  // Allocates the parameters without setting them (f32, bf16, or f64 for tests), and rotations of
  // `longest_row` positions.  Initial values are normal with standard deviation 0.02 for matrices,
  // or 0.02 / sqrt(2 layers) for those that add to the residual stream; 1 for norms, 0 for biases.
  Llama(const LlamaConfig&, DType, Stream&, int64_t longest_row, const LoraConfig& = {});

  Var hidden(const Text&, float dropout = 0) override;
  Var hidden(const Text&, KeyValueCache&) override;
  Parameter& head() override { return *head_; }

 private:
  std::vector<StoredRows> base_layout(const Parameter&) const override;
  struct Block {
    Parameter* norm_1 = nullptr;
    Linear qkv;
    Parameter *q_norm = nullptr, *k_norm = nullptr;
    Linear out;
    Parameter* norm_2 = nullptr;
    Linear gate_up, down;
  };
  void add_block(const std::string& prefix);
  // What the blocks of a pass share.
  struct Pass {
    const Text& text;
    Var rotations = {};
    float dropout = 0;
  };
  Var attend(const Var& x, const Pass&, const Block&, const KeyValueLayer* cache);
  Var block(Var x, const Pass&, const Block&, const KeyValueLayer* cache = nullptr);
  Var norm(const Var& x, Parameter& weight) const;

  LlamaConfig config_;
  Parameter& embedding_;
  std::vector<Block> blocks_;
  Parameter *norm_, *head_;  // created after the blocks
  Tensor rotations_;         // (positions, head), see kernels/rope_table.h
};

}  // namespace spool
