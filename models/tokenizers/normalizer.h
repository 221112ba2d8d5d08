#pragma once

// Normalises text before it is split, as a tokenizer.json says: applies Unicode's normal forms,
// lowercases, prepends characters, or replaces strings, one step after another.
//
// NFC composes letters and separate accents: such text is decoded in the composed spelling.  Bytes
// that are not UTF-8 stay as they are.

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

  // The normalised text: `text` itself, or in `buffer`.  Nothing is prepended to text that is empty
  // or continues another.
  std::string_view normalize(std::string_view text, bool continues, std::string& buffer) const;

  // Whether both sides of a cut are normalised as in the whole text: the cut is not within a string
  // that is replaced, nor between characters that are composed or reordered.
  bool keeps_apart(std::string_view before, std::string_view after) const;
  // Whether it prepends something to a text.
  bool prepends() const;
  bool empty() const { return steps_.empty(); }

 private:
  size_t longest_replaced() const;

  std::vector<NormalizerStep> steps_;
};

// Applies a normal form, or lowercases, any bytes.
std::string unicode_form(NormalizerStep::Kind, std::string_view text);

// Whether the string may span a cut between `before` and what follows, which begins with `after`.
bool spans(std::string_view string, std::string_view before, std::string_view after);

}  // namespace spool
