// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// GPT-2 (Radford et al. 2019): token and position embeddings; blocks of causal attention and an
// MLP, each behind a layer norm and added to the residual stream; a last layer norm; and the token
// embedding as the head.  B is rows, T tokens in a row, C channels, V the vocabulary.
//
// The token embedding has V rows and padding up to a multiple of 64.  The padding is zero, has no
// probability and no gradient, and is in no file.

#include <string>
#include <string_view>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/autograd/parameters.h"
#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/key_value_cache.h"
#include "spool/models/formats/tensor_file.h"

namespace spool {

class Gpt2 {
 public:
  // Allocates the parameters without setting them.  f32, bf16, or f64 for tests.
  Gpt2(const Gpt2Config&, DType, Stream&);
  Gpt2(const Gpt2&) = delete;
  Gpt2& operator=(const Gpt2&) = delete;

  // Matrices are normal with standard deviation 0.02, or 0.02 / sqrt(2 layers) for the projections
  // that add to the residual stream; norm weights one, biases zero.
  void initialise(uint64_t seed);
  // Sets the padding to zero; for loaded parameters.
  void clear_padding();

  const Gpt2Config& config() const { return config_; }
  DType dtype() const { return parameters_.dtype(); }

  // tokens i32 (B, T), T at most the context: (B, T, C), after the last layer norm.
  Var hidden(const Var& tokens, float dropout = 0);
  // The same for tokens that follow those in the cache, and appends them to it; on a tape that does
  // not record.
  Var hidden(const Var& tokens, KeyValueCache&);
  // An empty cache for B texts of up to the context, on the model's stream.
  KeyValueCache make_cache(int64_t B = 1) const;
  // Cross-entropy against targets i32 (B, T).
  Var loss(const Var& tokens, const Var& targets, float dropout = 0,
           Reduction reduction = Reduction::mean);
  // Rows of hidden()'s result (N, C): (N, padded V).
  Var logits(const Var& hidden);

  Parameters& parameters() { return parameters_; }

 private:
  struct Block {
    Parameter &ln_1_weight, &ln_1_bias, &attention_weight, &attention_bias, &projection_weight,
        &projection_bias, &ln_2_weight, &ln_2_bias, &fc_weight, &fc_bias, &fc_projection_weight,
        &fc_projection_bias;
  };
  void add_block(const std::string& prefix);
  Var last_norm(const Var& x);
  Var block(Var x, const Block&, float dropout, const KeyValueLayer* cache = nullptr);

  Gpt2Config config_;
  Parameters parameters_;
  Parameter &wte_, &wpe_;
  std::vector<Block> blocks_;
  Parameter *ln_f_weight_, *ln_f_bias_;  // added after the blocks
};

// How a file stores a model's tensors.
struct StoredAs {
  std::string_view prefix = {};  // before every name
  bool conv1d = true;            // four matrices of a layer are (in, out), as in transformers
};

// Tensors parallel to the model's parameters (their data, or an optimizer's state for each), under
// the names that transformers uses, without padding.
std::vector<NamedTensor> stored(Gpt2&, const std::vector<Tensor>& parallel, const StoredAs& = {});
// The parameters themselves.
std::vector<NamedTensor> stored_parameters(Gpt2&, const StoredAs& = {});

}  // namespace spool
