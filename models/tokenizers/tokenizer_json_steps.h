#pragma once

// The parts of a tokenizer.json around its model: what is done to text before, and to tokens after.
// Each is an object with a field `type`, and may be a Sequence of others.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/runtime/files/json.h"

namespace spool {

// What decoding does to the spelling of a token.
struct TokenSpelling {
  bool bytewise = false;   // it is in byte_alphabet.h's characters
  bool has_bytes = false;  // <0x0A> is a byte
  std::vector<std::pair<std::string, std::string>> replaced = {};
  std::string dropped_at_begin = {};  // of the first token of a text

  std::string decode(const std::string& spelling) const;
  // The same of the token that a text begins with.
  std::string decode_at_begin(std::string spelling) const;
};

// Each reads a part into what text goes through.
void read_normalizer(const JsonField& whole, TokenizerParts&);
void read_pre_tokenizer(const JsonField& whole, TokenizerParts&);
TokenSpelling read_decoder(const JsonField& whole, TokenizerParts&);
// After the added tokens.
void read_post_processor(const JsonField& whole, TokenizerParts&);

// The byte that <0x0A> and its like spell, or -1.
int byte_spelt(std::string_view spelling);

}  // namespace spool
