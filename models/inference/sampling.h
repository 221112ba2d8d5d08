// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Draws a token from a model's logits.

#include <cstdint>
#include <optional>
#include <span>

#include "spool/runtime/random.h"

namespace spool {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the most probable token
  int64_t top_k = 0;         // draw among this many most probable tokens; 0: all
  int64_t vocabulary = 0;    // tokens of the tokenizer, if fewer than the model's; 0: all
  std::optional<int32_t> end_of_text = {};  // the token that ends a text
};

// Draws a token with probability proportional to exp(logit / temperature), from all logits or the
// top_k largest.  Among equal logits the first count as larger.
int32_t sample(std::span<const float> logits, const SamplingOptions&, Random&);

}  // namespace spool
