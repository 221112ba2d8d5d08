#pragma once

// GPT-2 (Radford et al. 2019): token and position embeddings; blocks of causal attention and an
// MLP, each after a layer norm and added to the residual stream; a final layer norm; and the token
// embedding as the head.

#include <string>
#include <vector>

#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/model.h"

namespace spool {

class Gpt2 final : public Model {
 public:
  // Allocates the parameters without setting them: f32, bf16, or f64 for tests.  Their initial
  // values are normal with standard deviation 0.02 for matrices, or 0.02 / sqrt(2 layers) for
  // projections that add to the residual stream; 1 for norm weights, 0 for biases.
  Gpt2(const Gpt2Config&, DType, Stream&, const LoraConfig& = {});

  Var hidden(const Text&, float dropout = 0) override;
  Var hidden(const Text&, KeyValueCache&) override;
  Parameter& head() override { return wte_; }

 private:
  std::vector<StoredRows> base_layout(const Parameter&) const override;
  struct Norm {
    Parameter *weight, *bias;
  };
  struct Block {
    Norm norm_1;
    Linear qkv, out;
    Norm norm_2;
    Linear up, down;
  };
  void add_block(const std::string& prefix);
  Norm add_norm(const std::string& name);
  Var norm(const Var& x, const Norm&) const;
  Var attend(const Var& qkv, const Var& first, const KeyValueLayer* cache) const;
  Var block(Var x, const Var& first, const Block&, float dropout,
            const KeyValueLayer* cache = nullptr);
  Var embed(const Text&, int64_t first_position);

  Gpt2Config config_;
  Parameter &wte_, &wpe_;
  std::vector<Block> blocks_;
  Norm norm_;  // its parameters come after the blocks'
};

}  // namespace spool
