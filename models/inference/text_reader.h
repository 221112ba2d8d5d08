#pragma once

// Reads texts, one or several at once, into a key-value cache, and computes the logits of the
// tokens after them.  Each pass reads some tokens of every text.
//
// Where ranks share the model, rank 0 has a reader, and each of the others follows it: it does the
// same passes on its part of the parameters and of the cache.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>

#include "spool/models/families/model.h"
#include "spool/models/inference/shared_passes.h"
#include "spool/models/inference/token_pass.h"
#include "spool/runtime/ranks/communicator.h"

namespace spool {

class TextReader {
 public:
  // A cache for so many texts of up to `tokens` tokens; 0: the model's longest row.  Ranks share
  // the model if there is a ShardedModel of it.  All arguments outlive it.
  TextReader(Model&, Stream&, int64_t texts, int64_t tokens, const ShardedModel* shared = nullptr);
  // On rank 0, the others have followed it to the end.
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  int64_t length() const { return cache_.length(); }  // tokens of each text
  int64_t capacity() const { return cache_.capacity(); }
  int64_t rows() const { return cache_.rows(); }  // texts

  // Appends as many tokens to each text, (rows, n), in the order of the texts.  Positions (rows, n)
  // and, by text, where in the cache it begins: both or none, which means of one text without
  // padding.  `last`: the logits after them are to be computed; without it they may be, too.
  void read(const TokenPass::Rows&, bool last);
  // Of the token after each text, f32 (texts, padded V); the next pass overwrites them.
  const Tensor& logits() const { return logits_; }

  // Forgets all tokens.
  void clear();
  // Continues with these texts only, in ascending order, until they are forgotten.
  void keep_rows(std::span<const int64_t> rows);

 private:
  void say(const nlohmann::json&);
  Tensor last_of(const Tensor& hidden, int64_t n) const;

  Model& model_;
  Stream& stream_;
  bool leads_;
  int errors_;  // that were on their way when it was made
  UncountedExchanges beside_steps_;
  std::optional<SharedPasses> shared_ = {};
  KeyValueCache cache_;
  Tensor logits_;
  TokenPass token_pass_;
};

// On a rank above 0: does the passes of rank 0's next reader, until that is gone.
void follow_reader(Model&, Stream&, const ShardedModel&);

}  // namespace spool
