#include "spool/models/tokenizers/json_tokenizer.h"

#include <algorithm>

#include "spool/models/tokenizers/utf8.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

// Bytes that are encoded at a time.
constexpr size_t max_bytes_encoded_at_once = size_t{1} << 20;

constexpr std::string_view word_begin = "\xe2\x96\x81";  // U+2581, a blank in sentencepiece

// Where the next word begins: before word_begin after another character; or the text's size.
size_t next_word(std::string_view text) {
  for (size_t at = 0; (at = text.find(word_begin, at)) != text.npos; at += word_begin.size()) {
    if (at > 0 && !text.substr(0, at).ends_with(word_begin)) return at;
  }
  return text.size();
}

}  // namespace

// What encoding needs besides the tokenizer.
struct JsonTokenizer::Work {
  std::vector<int32_t>& tokens;
  std::vector<int32_t> parts = {};
  std::string normalized = {};
  std::optional<PreTokenizer::Walk> walk = {};
};

JsonTokenizer::JsonTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  const auto& vocabulary = parts_.vocabulary;
  has_words_ =
      parts_.pieces.empty() &&
      parts_.characters[{0, static_cast<int32_t>(code_point(word_begin))}] != PairTable::none &&
      std::ranges::none_of(vocabulary, [](const auto& token) {
        return next_word(token.first) < token.first.size();
      });
  std::vector<int32_t> symbols, tokens;
  for (const auto& [text, id] : vocabulary) {
    if (!parts_.takes_whole_tokens) {
      symbols.clear();
      tokens.clear();
      append_parts(text, symbols);
      parts_.merges.join(symbols, tokens);
      if (tokens.size() != 1 || tokens[0] != id) continue;
    }
    whole_.emplace(text, id);
    longest_ = std::max(longest_, text.size());
  }
  parts_.vocabulary.clear();
  parts_.vocabulary.shrink_to_fit();
}

void JsonTokenizer::encode(std::string_view text, std::vector<int32_t>& tokens) const {
  encode_from(text, /*continues=*/false, tokens);
}

void JsonTokenizer::encode_rest(std::string_view text, std::vector<int32_t>& tokens) const {
  encode_from(text, /*continues=*/true, tokens);
}

void JsonTokenizer::encode_from(std::string_view text, bool continues,
                                std::vector<int32_t>& tokens) const {
  Work work{.tokens = tokens};
  if (!parts_.pieces.empty()) work.walk.emplace(parts_.pieces);
  while (!text.empty()) {
    const size_t size = text.size() > max_bytes_encoded_at_once
                            ? boundary(text.substr(0, max_bytes_encoded_at_once))
                            : text.size();
    const std::string_view some = text.substr(0, size);
    for (size_t at = 0; at < size; continues = false) {
      const auto found = parts_.added.find(some, at);
      const size_t end = found ? found->begin : size;
      encode_between(some.substr(at, end - at), continues, work);
      if (found) tokens.push_back(found->id);
      at = found ? end + found->size : size;
    }
    text.remove_prefix(size);
    continues = true;
  }
}

void JsonTokenizer::encode_between(std::string_view text, bool continues, Work& work) const {
  const std::string_view normalized = parts_.normalizer.normalize(text, continues, work.normalized);
  for (size_t at = 0; at < normalized.size();) {
    const auto found = parts_.added_after_normalizer.find(normalized, at);
    const size_t end = found ? found->begin : normalized.size();
    encode_pieces(normalized.substr(at, end - at), work);
    if (found) work.tokens.push_back(found->id);
    at = found ? end + found->size : end;
  }
}

void JsonTokenizer::encode_pieces(std::string_view text, Work& work) const {
  if (text.empty()) return;
  if (!work.walk) return encode_words(text, work);
  work.walk->start(text);
  for (std::string_view piece; !(piece = work.walk->next()).empty();) encode_piece(piece, work);
}

void JsonTokenizer::encode_words(std::string_view text, Work& work) const {
  while (!text.empty()) {
    const size_t size = has_words_ ? next_word(text) : text.size();
    encode_piece(text.substr(0, size), work);
    text.remove_prefix(size);
  }
}

void JsonTokenizer::encode_piece(std::string_view piece, Work& work) const {
  if (piece.size() <= longest_) {
    const auto whole = whole_.find(piece);
    if (whole != whole_.end()) return work.tokens.push_back(whole->second);
  }
  work.parts.clear();
  append_parts(piece, work.parts);
  parts_.merges.join(work.parts, work.tokens);
}

// Of a character that is not in the vocabulary, its bytes if all of them are.
void JsonTokenizer::append_parts(std::string_view piece, std::vector<int32_t>& parts) const {
  bool after_unknown = false;
  while (!piece.empty()) {
    const size_t character = parts_.bytewise ? 0 : first_character_size(piece);
    const size_t size = std::max<size_t>(character, 1);
    const std::string_view bytes = piece.substr(0, size);
    piece.remove_prefix(size);
    const auto of_byte = [&](char c) { return parts_.bytes[static_cast<unsigned char>(c)]; };
    const int32_t known = character > 0
                              ? parts_.characters[{0, static_cast<int32_t>(code_point(bytes))}]
                              : PairTable::none;
    const bool has_bytes =
        std::ranges::all_of(bytes, [&](char c) { return of_byte(c) != PairTable::none; });
    if (known != PairTable::none) {
      parts.push_back(known);
    } else if (has_bytes) {
      std::ranges::transform(bytes, std::back_inserter(parts), of_byte);
    } else if (parts_.unknown != PairTable::none && !(after_unknown && parts_.fuse_unknown)) {
      parts.push_back(parts_.unknown);
    }
    after_unknown = known == PairTable::none && !has_bytes;
  }
}

std::string JsonTokenizer::decode_rest(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    check(0 <= token && token < vocabulary() && !parts_.texts.begin()[token].empty(),
          "the tokenizer of the tokenizer.json: token ", token, " is not in its vocabulary, 0 to ",
          vocabulary() - 1);
    text += parts_.texts.begin()[token];
  }
  return text;
}

std::string JsonTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text = decode_rest(tokens);
  size_t begin = 0;
  for (int64_t i = 0; i < parts_.max_stripped; ++i) {
    if (!std::string_view(text).substr(begin).starts_with(parts_.stripped)) break;
    begin += parts_.stripped.size();
  }
  return text.substr(begin);
}

std::optional<int32_t> JsonTokenizer::token_id(std::string_view text) const {
  const auto found = parts_.added_ids.find(text);
  if (found == parts_.added_ids.end()) return {};
  return found->second;
}

// After an added token the normalizer puts something before the text.
bool JsonTokenizer::can_cut(std::string_view text, size_t at) const {
  const std::string_view before = text.substr(0, at), after = text.substr(at);
  const auto apart = [&](const AddedTokens& added) {
    return !added.any_spans(before, after) && !(parts_.normalizer.prepends() && added.ends(before));
  };
  return apart(parts_.added) && apart(parts_.added_after_normalizer) &&
         parts_.normalizer.keeps_apart(before, after);
}

size_t JsonTokenizer::boundary(std::string_view text) const {
  constexpr size_t near = 4096;
  const std::string_view whole = without_incomplete_character(text);
  const std::string_view here = whole.empty() ? text : whole;
  const bool at_blanks = parts_.pieces.empty() ? has_words_ : parts_.pieces.cuts_at_blanks();
  for (size_t i = here.size(); at_blanks && i-- > 1 && here.size() - i < near;) {
    const std::string_view before = here.substr(0, i);
    if (here[i] == ' ' && ends_visibly(before) && !before.ends_with(word_begin) &&
        can_cut(here, i)) {
      return i;
    }
  }
  const size_t cut = parts_.pieces.empty() ? 0 : cut_between_pieces(here);
  return cut > 0 ? cut : here.size();
}

// After the last added token, and before one that may be incomplete; 0 if there is no such place.
size_t JsonTokenizer::cut_between_pieces(std::string_view text) const {
  size_t begin = 0, end = text.size();
  for (const AddedTokens* added : {&parts_.added, &parts_.added_after_normalizer}) {
    end = std::min(end, added->incomplete(text));
    size_t at = 0;
    while (const auto found = added->find(text.substr(0, end), at)) at = found->begin + found->size;
    begin = std::max(begin, at);
  }
  const auto allowed = [&](size_t at) { return can_cut(text, begin + at); };
  const size_t cut = parts_.pieces.last_cut(text.substr(begin, end - begin), allowed);
  return cut > 0 || (begin > 0 && allowed(0)) ? begin + cut : 0;
}

bool JsonTokenizer::operator==(const JsonTokenizer& other) const {
  const std::string json(kind);
  return parts_.files.at(json) == other.parts_.files.at(json);
}

void JsonTokenizer::write_files(const std::filesystem::path& directory) const {
  for (const auto& [name, content] : parts_.files) {
    write_text_file_atomically(directory / name, content);
  }
}

}  // namespace spool
