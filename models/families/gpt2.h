#pragma once

// GPT-2 (Radford et al. 2019): token and position embeddings, blocks of causal attention and an
// MLP, each behind a layer norm and a residual, a last layer norm, and the token embedding again as
// the head.  Here B is rows, T tokens in a row, C channels, V the vocabulary.
//
// The embedding has V rounded up to a multiple of 64 rows.  Those past V are zero, have no
// probability and no gradient, and are in no file.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/models/families/key_value_cache.h"
#include "spool/models/formats/tensor_file.h"

namespace spool {

struct Gpt2Config {
  int64_t layers = 12, heads = 12, channels = 768, context = 1024, vocabulary = 50257;
  double epsilon = 1e-5;  // of the layer norms
  GeluForm gelu = GeluForm::tanh;

  int64_t padded_vocabulary() const { return (vocabulary + 63) / 64 * 64; }
  int64_t parameter_count() const;  // without padding
  // Throws a sentence where the numbers make no model.
  void validate() const;
  bool operator==(const Gpt2Config&) const = default;
};

// gpt2-tiny, gpt2-124m, gpt2-355m, gpt2-774m, gpt2-1558m.
std::vector<std::string_view> gpt2_presets();
std::optional<Gpt2Config> gpt2_preset(std::string_view name);

// As transformers writes config.json, with all it may say that changes what the model computes;
// throws where that cannot be had.  `file` is for the sentences.
nlohmann::json to_json(const Gpt2Config&);
Gpt2Config gpt2_config(const nlohmann::json&, const std::string& file);

class Gpt2 {
 public:
  // The parameters exist and are not set.  f32, bf16, or f64 for tests.
  Gpt2(const Gpt2Config&, DType, Stream&);
  Gpt2(const Gpt2&) = delete;
  Gpt2& operator=(const Gpt2&) = delete;

  // Normal with deviation 0.02, and 0.02 / sqrt(2 layers) where a branch joins the residual; biases
  // zero.
  void initialise(uint64_t seed);
  // Sets what belongs to no token to zero, as initialise() does; for parameters that are loaded.
  void clear_padding();

  const Gpt2Config& config() const { return config_; }
  DType dtype() const { return dtype_; }

  // tokens i32 (B, T), T at most the context: (B, T, C), after the last layer norm.
  Var hidden(const Var& tokens, float dropout = 0);
  // Of tokens that follow those of the cache, into which they go; on a tape that does not record.
  Var hidden(const Var& tokens, KeyValueCache&);
  // For B texts of up to the context, on the model's stream.
  KeyValueCache make_cache(int64_t B = 1) const;
  // Against targets i32 (B, T).
  Var loss(const Var& tokens, const Var& targets, float dropout = 0,
           Reduction reduction = Reduction::mean);
  // Of some rows of what hidden() returned (N, C): (N, padded V).
  Var logits(const Var& hidden);

  std::vector<Parameter*> parameters();

 private:
  struct Block {
    Parameter ln_1_weight, ln_1_bias, attention_weight, attention_bias, projection_weight,
        projection_bias, ln_2_weight, ln_2_bias, fc_weight, fc_bias, fc_projection_weight,
        fc_projection_bias;
    std::vector<Parameter*> parameters();
  };
  Var last_norm(const Var& x);
  Var block(Var x, Block&, float dropout, const KeyValueLayer* cache = nullptr);

  Gpt2Config config_;
  DType dtype_;
  Stream& stream_;
  Parameter wte_, wpe_;
  std::vector<Block> blocks_;
  Parameter ln_f_weight_, ln_f_bias_;
};

// How a file has a model's tensors.
struct StoredAs {
  std::string_view prefix = {};  // before every name
  bool conv1d = true;            // four matrices of a layer are (in, out), as transformers has them
};

// The tensors parallel to the model's parameters (their data, or an optimizer's state for each), by
// the names that transformers uses.
std::vector<NamedTensor> stored(Gpt2&, const std::vector<Tensor>& parallel, const StoredAs& = {});
// The parameters themselves.
std::vector<NamedTensor> stored_parameters(Gpt2&, const StoredAs& = {});

}  // namespace spool
