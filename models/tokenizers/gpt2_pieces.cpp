#include "spool/models/tokenizers/gpt2_pieces.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <string>

#include "spool/runtime/check.h"

namespace spool {
namespace {

#define WHITE_SPACE                                                                   \
  R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f})" \
  R"(\x{205f}\x{3000})"

constexpr const char* pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" WHITE_SPACE R"(\p{L}\p{N}]+|[)" WHITE_SPACE
    R"(]+(?![^)" WHITE_SPACE R"(])|[)" WHITE_SPACE "]+";
#undef WHITE_SPACE

std::string message(int code) {
  std::array<unsigned char, 256> text{};
  ::pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

bool is_blank(char c) { return c == ' ' || ('\t' <= c && c <= '\r'); }

// Whether the last character is certainly not white space.
bool ends_visibly(std::string_view text) {
  constexpr std::string_view spaces[] = {"\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x81\x9f",
                                         "\xe3\x80\x80"};
  if (text.empty()) return false;
  const char last = text.back();
  if (static_cast<signed char>(last) >= 0) return '!' <= last && last <= '~';
  const bool general = text.size() >= 3 && text.substr(text.size() - 3, 2) == "\xe2\x80";
  return !general &&
         std::ranges::none_of(spaces, [&](std::string_view s) { return text.ends_with(s); });
}

size_t character_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// The text without an incomplete last character, unless that is all of it.
std::string_view whole_characters(std::string_view text) {
  for (size_t size = 1; size < 4 && size < text.size(); ++size) {
    const size_t at = text.size() - size;
    if (character_size(text[at]) > size) return text.substr(0, at);
    if (static_cast<signed char>(text[at]) >= -0x40) break;  // the start of a character
  }
  return text;
}

}  // namespace

struct Gpt2Pieces::Pattern {
  pcre2_code* code = nullptr;
  bool compiled = false;  // to machine code; some systems forbid that
  Pattern() {
    int error = 0;
    PCRE2_SIZE at = 0;
    code = ::pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                           PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &error, &at, nullptr);
    check(code != nullptr, "PCRE2 cannot compile GPT-2's pattern: ", message(error), " at ", at);
    compiled = ::pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  ~Pattern() { ::pcre2_code_free(code); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
};

struct Gpt2Pieces::Walk::Match {
  const pcre2_code* code;
  pcre2_match_data* data;
  // Bytes that one match looks at.  Without machine code PCRE2 first checks all bytes it is given
  // for valid UTF-8.
  size_t window;
  explicit Match(const Pattern& p)
      : code(p.code),
        data(::pcre2_match_data_create_from_pattern(p.code, nullptr)),
        window(p.compiled ? SIZE_MAX : 256) {
    check(data != nullptr, "PCRE2 could not allocate memory for a match");
  }
  ~Match() { ::pcre2_match_data_free(data); }
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;
};

Gpt2Pieces::Gpt2Pieces() : pattern_(std::make_unique<Pattern>()) {}
Gpt2Pieces::~Gpt2Pieces() = default;

Gpt2Pieces::Walk::Walk(const Gpt2Pieces& pieces, std::string_view text)
    : text_(text), match_(std::make_unique<Match>(*pieces.pattern_)) {}
Gpt2Pieces::Walk::~Walk() = default;

std::string_view Gpt2Pieces::Walk::next() {
  if (at_ == text_.size()) return {};
  if (at_ >= match_end_) find();
  const size_t begin = at_;
  at_ = at_ < match_begin_ ? match_begin_ : match_end_;
  return text_.substr(begin, at_ - begin);
}

void Gpt2Pieces::Walk::find() {
  size_t window = match_->window;
  while (!find_within(std::min(window, text_.size() - at_))) window *= 2;
}

// Returns false if the text after the window may change the match.
bool Gpt2Pieces::Walk::find_within(size_t window) {
  constexpr size_t lookahead = 8;  // bytes after a match that it may depend on
  const std::string_view text = text_.substr(at_, window);
  const bool whole = window == text_.size() - at_;
  const int result = ::pcre2_match(match_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), 0, 0, match_->data, nullptr);
  check(result > 0 || result == PCRE2_ERROR_NOMATCH, "PCRE2 failed at byte ", at_,
        " of a text: ", message(result));
  const PCRE2_SIZE* range = ::pcre2_get_ovector_pointer(match_->data);
  const size_t begin = result > 0 ? range[0] : window, end = result > 0 ? range[1] : window;
  if (!whole && end + lookahead > window) return false;
  match_begin_ = at_ + begin;
  match_end_ = at_ + end;
  return true;
}

// White space after a visible character always begins a piece, and the piece before it does not
// depend on what follows.
size_t Gpt2Pieces::boundary(std::string_view text) const {
  constexpr size_t near = 4096;
  text = whole_characters(text);
  for (size_t i = text.size(); i-- > 1 && text.size() - i < near;) {
    if (is_blank(text[i]) && ends_visibly(text.substr(0, i))) return i;
  }
  // Otherwise cut before the last piece, which more text may lengthen, or before the last two,
  // which may become one contraction.
  std::string_view piece, last, before;
  for (Walk walk(*this, text); !(piece = walk.next()).empty(); last = piece) before = last;
  size_t cut = text.size() - last.size();
  if (before == "'" && last.size() <= 2) cut -= before.size();
  return cut > 0 ? cut : text.size();
}

}  // namespace spool
