#pragma once

// Draws a token by the logits of a model.

#include <cstdint>
#include <optional>
#include <span>

#include "spool/runtime/random.h"

namespace spool {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // draw among so many of the likeliest; 0: all
  int64_t vocabulary = 0;    // draw among the first so many, a tokenizer's; 0: all of the model's
  std::optional<int32_t> end_of_text = {};  // the token that ends a text
};

// A token drawn with probability proportional to exp(logit / temperature), of all logits given or
// of the likeliest; of equal ones, the first are the likelier.
int32_t sample(std::span<const float> logits, const SamplingOptions&, Random&);

}  // namespace spool
