#pragma once

// Draws a token from a model's logits.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "spool/runtime/random.h"

namespace spool {

struct SamplingOptions {
  double temperature = 0.8;       // 0: always the most probable token
  int64_t top_k = 0;              // draw among this many most probable tokens; 0: all
  double top_p = 1;               // of these, the fewest whose probabilities sum up to this share
  double min_p = 0;               // of these, those with at least this fraction of the largest
  double repetition_penalty = 1;  // above 1: tokens of the text become less probable
  int64_t vocabulary = 0;         // tokens of the tokenizer, if fewer than the model's; 0: all
  std::vector<int32_t> stop_tokens = {};  // each ends a text

  bool stops_at(int32_t token) const {
    return std::ranges::find(stop_tokens, token) != stop_tokens.end();
  }
};

// Draws a token with probability proportional to exp(logit / temperature), from all logits or some
// of the largest.  Of equal logits the first counts as larger.  First, the logits of tokens in the
// text are divided by the penalty if positive, else multiplied by it (Keskar et al. 2019, CTRL).
// The options are applied in the order of transformers: penalty, temperature, top_k, top_p, min_p.
int32_t sample(std::span<const float> logits, const SamplingOptions&, Random&,
               std::span<const int32_t> text = {});

}  // namespace spool
