#pragma once

// What a tokenizer.json does to text before it is split: one of Unicode's normal forms, small
// letters, characters put before it, strings replaced by others, one after the other.
//
// NFC takes letters with separate accents for the letters that have them: such text comes back
// from its tokens in the other spelling.  Bytes that are not UTF-8 stay as they are.

#include <string>
#include <string_view>
#include <vector>

namespace spool {

struct NormalizerStep {
  enum class Kind { nfc, nfd, nfkc, nfkd, lowercase, prepend, replace };
  Kind kind = Kind::nfc;
  std::string from = {}, to = {};  // replace: `from` by `to`; prepend: `to`
};

class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }

  // The text itself, or what it became, in `buffer`.  Nothing is put before text that is empty or
  // that continues another.
  std::string_view normalize(std::string_view text, bool continues, std::string& buffer) const;

  // Whether a text that is cut there becomes the same as in one: it is not within a string that is
  // replaced, nor between characters that are composed or ordered.
  bool keeps_apart(std::string_view before, std::string_view after) const;
  // Whether it puts something before a text.
  bool prepends() const;
  bool empty() const { return steps_.empty(); }

 private:
  size_t longest_replaced() const;

  std::vector<NormalizerStep> steps_;
};

// A normal form, or small letters, of any bytes.
std::string unicode_form(NormalizerStep::Kind, std::string_view text);

// Whether the string may be partly in the text before a cut and partly in what follows, of which
// `after` is the beginning.
bool spans(std::string_view string, std::string_view before, std::string_view after);

}  // namespace spool
