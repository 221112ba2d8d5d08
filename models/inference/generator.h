#pragma once

// Generates text with a model.  A key-value cache holds the tokens that the model has read, so each
// new token costs one pass over the parameters, however long the text is.
//
// A text may be longer than the cache.  When a token follows a full cache, it is cleared and the
// last half of its tokens is read again.  The distribution of the next token depends on the text
// alone, not on how many calls appended it.

#include <functional>
#include <span>
#include <vector>

#include "spool/models/families/model.h"
#include "spool/models/inference/sampling.h"
#include "spool/models/inference/text_reader.h"

namespace spool {

class Generator {
 public:
  // Allocates a cache for `tokens` tokens; 0, or more than the model's longest row: for the longest
  // row.  The text is empty.  Ranks may share the model (text_reader.h).
  Generator(Model& model, Stream& stream, int64_t tokens = 0, const ShardedModel* shared = nullptr);

  // Empties the text.
  void begin();
  // Appends tokens to the text.  The model reads them at the next call of next() or logits().
  void read(std::span<const int32_t> tokens);
  // Draws the token after the text, which has at least one, and appends it.
  int32_t next(const SamplingOptions&, Random&);
  // Logits of the token after the text, f32 (1, padded V); the next pass overwrites them.
  const Tensor& logits();

  // Starts a new text with `tokens`, and appends up to `count` to them.  on_token is called with
  // each, and may return false to stop.  A stop token also stops, and is not appended.
  void extend(std::vector<int32_t>& tokens, int64_t count, const SamplingOptions&, Random&,
              const std::function<bool(int32_t)>& on_token = {});

  // Does the device work of every shape once, so that its peak suffices for any text.
  void rehearse();
  // Does the device work of the shapes that extend() uses for a prompt of this many tokens and this
  // count, and no other: the peak is extend()'s to the byte.
  void rehearse(int64_t prompt, int64_t count);

 private:
  Model& model_;
  TextReader reader_;
  std::vector<float> host_;    // a copy of the logits
  std::vector<int32_t> text_;  // from the first cached token on
};

}  // namespace spool
