#include "spool/models/tokenizers/json_tokenizer.h"

#include <algorithm>

#include "spool/models/tokenizers/utf8.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

// Maximum number of bytes that are encoded at a time.
constexpr size_t max_bytes_encoded_at_once = size_t{1} << 20;

// Where the next word begins: at a word_begin that neither begins the text nor follows another one;
// the text's size if there is none.
size_t next_word(std::string_view text, std::string_view word_begin) {
  for (size_t at = 0; (at = text.find(word_begin, at)) != text.npos; at += word_begin.size()) {
    if (at > 0 && !text.substr(0, at).ends_with(word_begin)) return at;
  }
  return text.size();
}

}  // namespace

// Working memory and results of encoding.
struct JsonTokenizer::Work {
  std::vector<int32_t>& tokens;
  PieceEncoder::Work pieces = {};
  std::string normalized = {}, spaced = {};
  std::optional<PreTokenizer::Walk> walk = {};
};

JsonTokenizer::JsonTokenizer(TokenizerParts parts)
    : parts_(std::move(parts)), word_begin_(parts_.metaspace.value_or(Metaspace{}).blank) {
  const bool within_tokens = std::ranges::any_of(parts_.encoding.tokens, [&](const auto& token) {
    return next_word(token.first, word_begin_) < token.first.size();
  });
  encoder_ = std::make_unique<PieceEncoder>(std::move(parts_.encoding));
  has_words_ = parts_.pieces.empty() && !within_tokens && encoder_->has_character(word_begin_);
  cuts_at_blanks_ = begins_words_at_blanks();
}

// Whether a space always begins a word or a piece.
bool JsonTokenizer::begins_words_at_blanks() const {
  std::string normalized, spaced;
  std::string_view blank = parts_.normalizer.normalize(" ", /*continues=*/true, normalized);
  if (!parts_.pieces.empty()) return blank == " " && parts_.pieces.cuts_at_blanks();
  const bool splits = parts_.metaspace && parts_.metaspace->splits;
  if (parts_.metaspace) blank = parts_.metaspace->apply(blank, TextPlace::middle, spaced);
  return blank == word_begin_ && (has_words_ || splits);
}

void JsonTokenizer::encode(std::string_view text, std::vector<int32_t>& tokens) const {
  encode_from(text, TextPlace::begin, tokens);
}

void JsonTokenizer::encode_rest(std::string_view text, std::vector<int32_t>& tokens) const {
  encode_from(text, TextPlace::middle, tokens);
}

void JsonTokenizer::encode_from(std::string_view text, TextPlace place,
                                std::vector<int32_t>& tokens) const {
  constexpr size_t many_bytes = 1 << 14;
  Work work{.tokens = tokens};
  if (text.size() >= many_bytes) work.pieces.remember();
  if (!parts_.pieces.empty()) work.walk.emplace(parts_.pieces);
  for (; !text.empty(); place = TextPlace::middle) {
    const size_t size = text.size() > max_bytes_encoded_at_once
                            ? boundary(text.substr(0, max_bytes_encoded_at_once))
                            : text.size();
    const std::string_view some = text.substr(0, size);
    AddedTokens::Walk added(parts_.added, some);
    size_t at = 0;
    while (const auto found = added.next()) {
      if (at < found->begin) encode_between(some.substr(at, found->begin - at), place, work);
      tokens.push_back(found->id);
      at = found->begin + found->size;
      place = TextPlace::after_token;
    }
    encode_between(some.substr(at), place, work);
    text.remove_prefix(size);
  }
}

void JsonTokenizer::encode_between(std::string_view text, TextPlace place, Work& work) const {
  const std::string_view normalized =
      parts_.normalizer.normalize(text, place == TextPlace::middle, work.normalized);
  AddedTokens::Walk added(parts_.added_after_normalizer, normalized);
  size_t at = 0;
  while (const auto found = added.next()) {
    if (at < found->begin) encode_pieces(normalized.substr(at, found->begin - at), place, work);
    work.tokens.push_back(found->id);
    at = found->begin + found->size;
    place = TextPlace::after_token;
  }
  encode_pieces(normalized.substr(at), place, work);
}

void JsonTokenizer::encode_pieces(std::string_view text, TextPlace place, Work& work) const {
  if (text.empty()) return;
  if (parts_.metaspace) text = parts_.metaspace->apply(text, place, work.spaced);
  if (!work.walk) return encode_words(text, work);
  work.walk->start(text);
  for (std::string_view piece; !(piece = work.walk->next()).empty();) {
    encoder_->encode(piece, work.pieces, work.tokens);
  }
}

void JsonTokenizer::encode_words(std::string_view text, Work& work) const {
  const bool splits = parts_.metaspace && parts_.metaspace->splits;
  while (!text.empty()) {
    const size_t size = splits       ? std::min(text.find(word_begin_, 1), text.size())
                        : has_words_ ? next_word(text, word_begin_)
                                     : text.size();
    encoder_->encode(text.substr(0, size), work.pieces, work.tokens);
    text.remove_prefix(size);
  }
}

const std::string& JsonTokenizer::text_of(int32_t token, bool begins) const {
  check(0 <= token && token < vocabulary() && !parts_.texts.begin()[token].empty(),
        "the tokenizer of the tokenizer.json: token ", token, " is not in its vocabulary, 0 to ",
        vocabulary() - 1);
  const auto other = begins ? parts_.texts_at_begin.find(token) : parts_.texts_at_begin.end();
  return other == parts_.texts_at_begin.end() ? parts_.texts.begin()[token] : other->second;
}

std::string JsonTokenizer::decode_rest(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) text += text_of(token, /*begins=*/false);
  return text;
}

std::string JsonTokenizer::decode(std::span<const int32_t> tokens) const {
  if (tokens.empty()) return {};
  const std::string text = text_of(tokens[0], /*begins=*/true) + decode_rest(tokens.subspan(1));
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

bool JsonTokenizer::prepends_after_tokens() const {
  const auto& metaspace = parts_.metaspace;
  return parts_.normalizer.prepends() ||
         (metaspace && metaspace->prepend == Metaspace::Prepend::always);
}

bool JsonTokenizer::can_cut(std::string_view text, size_t at) const {
  constexpr size_t near = 2 * AddedTokens::max_bytes;
  std::string_view before = text.substr(0, at), after = text.substr(at);
  const auto apart = [&](const AddedTokens& added) {
    return !added.any_spans(before, after) && !(prepends_after_tokens() && added.ends(before));
  };
  if (!apart(parts_.added) || !parts_.normalizer.keeps_apart(before, after)) return false;
  if (parts_.added_after_normalizer.empty()) return true;
  std::string left, right;
  before = before.substr(before.size() - std::min(before.size(), near));
  before = parts_.normalizer.normalize(before, /*continues=*/true, left);
  after = parts_.normalizer.normalize(after.substr(0, near), /*continues=*/true, right);
  return apart(parts_.added_after_normalizer);
}

size_t JsonTokenizer::boundary(std::string_view text) const {
  const std::string_view whole = without_incomplete_character(text);
  const std::string_view here = whole.empty() ? text : whole;
  const size_t near = parts_.pieces.empty() ? here.size() : 4096;
  for (size_t i = here.size(); cuts_at_blanks_ && i-- > 1 && here.size() - i < near;) {
    const std::string_view before = here.substr(0, i);
    if (here[i] == ' ' && ends_visibly(before) && !before.ends_with(word_begin_) &&
        can_cut(here, i)) {
      return i;
    }
  }
  const size_t cut = cut_between_pieces(here);
  if (cut > 0) return cut;
  const size_t known = parts_.added.incomplete(here);
  return known > 0 ? known : here.size();
}

// Cuts between pieces after the last added token and before one that may be incomplete, or else at
// the begin or end of a token.  0 if there is no such place.
size_t JsonTokenizer::cut_between_pieces(std::string_view text) const {
  const size_t end = parts_.added.incomplete(text);
  std::vector<size_t> ends_of_tokens;  // begins and ends, in order
  AddedTokens::Walk walk(parts_.added, text.substr(0, end));
  while (const auto found = walk.next()) {
    ends_of_tokens.push_back(found->begin);
    ends_of_tokens.push_back(found->begin + found->size);
  }
  const size_t begin = ends_of_tokens.empty() ? 0 : ends_of_tokens.back();
  const auto allowed = [&](size_t at) { return can_cut(text, begin + at); };
  const size_t cut = cut_in_rest(text.substr(begin, end - begin), allowed);
  if (cut > 0) return begin + cut;
  const auto place = std::ranges::find_if(ends_of_tokens.rbegin(), ends_of_tokens.rend(),
                                          [&](size_t at) { return at == 0 || can_cut(text, at); });
  return place == ends_of_tokens.rend() ? 0 : *place;
}

// Cuts between two pieces of text that has no added tokens, except those found after it is
// normalised.
size_t JsonTokenizer::cut_in_rest(std::string_view rest,
                                  const std::function<bool(size_t)>& allowed) const {
  if (rest.empty() || parts_.pieces.empty()) return 0;
  std::string buffer;
  const std::string_view normalized = parts_.normalizer.normalize(rest, /*continues=*/true, buffer);
  size_t begin = 0;
  const size_t end = parts_.added_after_normalizer.incomplete(normalized);
  AddedTokens::Walk walk(parts_.added_after_normalizer, normalized.substr(0, end));
  while (const auto found = walk.next()) begin = found->begin + found->size;
  const std::string_view open = normalized.substr(begin, end - begin);
  if (normalized == rest) {
    const auto is_allowed = [&](size_t at) { return allowed(begin + at); };
    const size_t cut = parts_.pieces.last_cut(open, is_allowed);
    return cut > 0 || (begin > 0 && allowed(begin)) ? begin + cut : 0;
  }
  const std::map<size_t, size_t> places = common_places(rest, normalized.size());
  const size_t cut = parts_.pieces.last_cut(open, [&](size_t at) {
    const auto found = places.find(begin + at);
    return found != places.end() && allowed(found->second);
  });
  return cut > 0 ? places.at(begin + cut) : 0;
}

// Maps places near the end of the normalised text, of `size` bytes, to places in the text.
std::map<size_t, size_t> JsonTokenizer::common_places(std::string_view text, size_t size) const {
  constexpr size_t near = 2048;
  std::map<size_t, size_t> places;
  size_t end = text.size(), at = size;
  std::string buffer;
  for (size_t i = end; i-- > 1 && text.size() - i < near;) {
    if (first_character_size(text.substr(i)) == 0) continue;
    if (!parts_.normalizer.keeps_apart(text.substr(0, i), text.substr(i))) continue;
    const std::string_view part = text.substr(i, end - i);
    const size_t of_part = parts_.normalizer.normalize(part, /*continues=*/true, buffer).size();
    if (of_part > at) break;
    at -= of_part;
    places[at] = end = i;
  }
  return places;
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
