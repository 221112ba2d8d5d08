#pragma once

// Writes text with a model: the logits of the next token, a draw from them, and again.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "spool/models/gpt2.h"
#include "spool/runtime/random.h"

namespace spool {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // draw among so many of the likeliest; 0: all
  int64_t vocabulary = 0;    // draw among the first so many, a tokenizer's; 0: all of the model's
};

// A token drawn with probability proportional to exp(logit / temperature).
int32_t sample(std::span<const float> logits, const SamplingOptions&, Random&);

class Generator {
 public:
  Generator(Gpt2& model, Stream& stream) : model_(model), stream_(stream) {}

  // f32 (1, padded V): of the token after these, of which the last `context` count.
  Tensor next_logits(std::span<const int32_t> tokens);

  // Appends `count` tokens to those given (at least one); `seen` is called with each.
  void extend(std::vector<int32_t>& tokens, int64_t count, const SamplingOptions&, Random&,
              const std::function<void(int32_t)>& seen = {});

  // The device work of texts of every length up to this, and no more.
  void rehearse(int64_t longest);

 private:
  Gpt2& model_;
  Stream& stream_;
};

}  // namespace spool
