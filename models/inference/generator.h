#pragma once

// Writes text with a model.  What has been read is in a key-value cache, so that a token costs one
// pass over the parameters, however long the text is.
//
// A text may be longer than the context.  Where the cache is full and a token is to come, the last
// half of the context is kept and read again into an emptied cache.  So what a token is drawn from
// depends on the text alone, not on how it was handed over.

#include <functional>
#include <span>
#include <vector>

#include "spool/models/families/gpt2.h"
#include "spool/models/inference/sampling.h"

namespace spool {

class Generator {
 public:
  // Allocates the cache, for texts of the model's context.  There is no text yet.
  Generator(Gpt2& model, Stream& stream);

  // Forgets the text.
  void begin();
  // Appends tokens to the text.  The work is done when something is asked of it.
  void read(std::span<const int32_t> tokens);
  // Draws a token to follow the text (at least one), and appends it.
  int32_t next(const SamplingOptions&, Random&);
  // f32 (1, padded V): of the token to follow the text; overwritten when there are others.
  const Tensor& logits();

  // Begins anew with the tokens given, and appends up to `count` to them; `seen` is called with
  // each, and may return false to stop.  So does the end of text, which is not appended.
  void extend(std::vector<int32_t>& tokens, int64_t count, const SamplingOptions&, Random&,
              const std::function<bool(int32_t)>& seen = {});

  // The device work of every shape there is, once: what it takes suffices for any text.
  void rehearse();
  // Likewise of those that come up when a prompt is extended by `count` tokens, and no other: what
  // it takes is, to the byte, what extend() will.
  void rehearse(int64_t prompt, int64_t count);

 private:
  void pass(std::span<const int32_t> tokens, bool last);

  Gpt2& model_;
  Stream& stream_;
  KeyValueCache cache_;
  Tensor logits_;              // f32 (1, padded V)
  std::vector<float> host_;    // a copy of them
  std::vector<int32_t> text_;  // from the first token of the cache on
};

}  // namespace spool
