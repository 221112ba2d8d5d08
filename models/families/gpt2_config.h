// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The numbers that define a GPT-2, its presets, and its config.json as transformers writes it.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/kernels/gelu.h"
#include "spool/runtime/integer.h"

namespace spool {

class JsonField;

struct Gpt2Config {
  int64_t layers = 12, heads = 12, channels = 768, context = 1024, vocabulary = 50257;
  double epsilon = 1e-5;  // of the layer norms
  GeluForm gelu = GeluForm::tanh;

  int64_t padded_vocabulary() const { return round_up<int64_t>(vocabulary, 64); }
  int64_t parameter_count() const;  // without padding
  // Throws if no model can have these numbers.
  void validate() const;
  bool operator==(const Gpt2Config&) const = default;
};

// gpt2-tiny, gpt2-124m, gpt2-355m, gpt2-774m, gpt2-1558m.
std::vector<std::string_view> gpt2_presets();
std::optional<Gpt2Config> gpt2_preset(std::string_view name);

// Reads every field that changes what the model computes; throws if one is unsupported.
Gpt2Config gpt2_config(const JsonField& config);
nlohmann::json to_json(const Gpt2Config&);

// The token that ends a text: eos_token_id, if the vocabulary has it.
std::optional<int32_t> end_of_text_of(const JsonField& config, int64_t vocabulary);
// config.json, which stops generation at `end_of_text` if there is one.
std::string format_config(const Gpt2Config&, std::optional<int32_t> end_of_text);

}  // namespace spool
