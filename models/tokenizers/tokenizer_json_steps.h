#pragma once

// Reads the parts of a tokenizer.json around its model: the steps on text before it, and on tokens
// after it.  Each part is an object with a field `type`, and may be a Sequence of others.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/runtime/files/json.h"

namespace spool {

// A member that is there and not null.
std::optional<JsonField> find_value(const JsonField& object, const char* key);
// A member that is true or false, or this if it is absent.
bool flag_of(const JsonField& object, const char* key, bool absent);

// What decoding does to the spelling of a token.
struct TokenSpelling {
  bool bytewise = false;   // it is spelt in the characters of byte_alphabet.h
  bool has_bytes = false;  // <0x0A> is a byte
  std::vector<std::pair<std::string, std::string>> replaced = {};
  std::string dropped_at_begin = {};  // from the first token of a text

  std::string decode(const std::string& spelling) const;
  // The same for the first token of a text.
  std::string decode_at_begin(std::string spelling) const;
};

// Each reads one part.
void read_normalizer(const JsonField& whole, TokenizerParts&);
void read_pre_tokenizer(const JsonField& whole, TokenizerParts&);
TokenSpelling read_decoder(const JsonField& whole, TokenizerParts&);
// Call it after the added tokens are known.
void read_post_processor(const JsonField& whole, TokenizerParts&);

// The byte of a spelling such as <0x0A>, or -1.
int byte_spelt(std::string_view spelling);

}  // namespace spool
