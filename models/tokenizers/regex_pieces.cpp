#include "spool/models/tokenizers/regex_pieces.h"

#include <array>
#include <string>

#include "spool/models/tokenizers/regex_syntax.h"
#include "spool/models/tokenizers/utf8.h"
#include "spool/runtime/check.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace spool {
namespace {

// Maximum number of steps of one match, after which PCRE2 gives up.  A match over a megabyte of
// white space takes a million.
constexpr uint32_t max_match_steps = 10'000'000;

std::string pcre2_message(int code) {
  std::array<unsigned char, 256> text{};
  ::pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR pcre2_text(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct RegexPieces::Pattern {
  pcre2_code* code = nullptr;
  bool compiled = false;  // to machine code; some systems forbid that
  explicit Pattern(const std::string& expression) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code = ::pcre2_compile(pcre2_text(expression), expression.size(),
                           PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                           nullptr);
    check(code != nullptr, "PCRE2 refuses the regular expression: ", pcre2_message(error));
    uint32_t matches_nothing = 0;
    ::pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_nothing);
    if (matches_nothing != 0) {
      ::pcre2_code_free(code);
      check(/*ok=*/false, "the regular expression can match a piece without a character");
    }
    compiled = ::pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  ~Pattern() { ::pcre2_code_free(code); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
};

struct RegexPieces::Walk::Matcher {
  const pcre2_code* code;
  bool compiled;
  pcre2_match_data* data;
  pcre2_match_context* context;
  explicit Matcher(const Pattern& p)
      : code(p.code),
        compiled(p.compiled),
        data(::pcre2_match_data_create(1, nullptr)),
        context(::pcre2_match_context_create(nullptr)) {
    if (context) ::pcre2_set_match_limit(context, max_match_steps);
    if (data && context) return;
    free();
    fail(ErrorKind::memory, "PCRE2 could not allocate memory for a match");
  }
  ~Matcher() { free(); }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  void free() {
    ::pcre2_match_data_free(data);
    ::pcre2_match_context_free(context);
  }

  // Compiled code has a stack of 32 KiB; the interpreter's stack is not limited.
  int match(std::string_view text, size_t begin) const {
    if (compiled) {
      const int result =
          ::pcre2_jit_match(code, pcre2_text(text), text.size(), begin, 0, data, context);
      if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
    }
    return ::pcre2_match(code, pcre2_text(text), text.size(), begin,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
  }
};

RegexPieces::RegexPieces(std::string_view expression)
    : pattern_(std::make_unique<Pattern>(in_pcre2(expression))) {}
RegexPieces::~RegexPieces() = default;
RegexPieces::RegexPieces(RegexPieces&&) noexcept = default;
RegexPieces& RegexPieces::operator=(RegexPieces&&) noexcept = default;

RegexPieces::Walk::Walk(const RegexPieces& pieces, std::string_view text)
    : text_(text), matcher_(std::make_unique<Matcher>(*pieces.pattern_)) {}
RegexPieces::Walk::~Walk() = default;
RegexPieces::Walk::Walk(Walk&&) noexcept = default;

void RegexPieces::Walk::start(std::string_view text) {
  text_ = text;
  at_ = match_begin_ = match_end_ = valid_begin_ = valid_end_ = 0;
}

std::string_view RegexPieces::Walk::next() {
  if (at_ == text_.size()) return {};
  if (at_ >= match_end_) find();
  const size_t begin = at_;
  at_ = at_ < match_begin_ ? match_begin_ : match_end_;
  return text_.substr(begin, at_ - begin);
}

void RegexPieces::Walk::find() {
  match_begin_ = match_end_ = at_;
  if (at_ == valid_end_) {
    while (match_end_ < text_.size() && first_character_size(text_.substr(match_end_)) == 0) {
      ++match_end_;
    }
    valid_begin_ = match_end_;
    valid_end_ = match_end_ + valid_utf8_size(text_.substr(match_end_));
    if (match_end_ > at_) return;  // bytes that are not UTF-8
  }
  const std::string_view valid = text_.substr(valid_begin_, valid_end_ - valid_begin_);
  const int result = matcher_->match(valid, at_ - valid_begin_);
  check(result >= 0 || result == PCRE2_ERROR_NOMATCH,
        "the tokenizer's regular expression fails at byte ", at_,
        " of a text: ", pcre2_message(result), "; another tokenizer is needed");
  const PCRE2_SIZE* range = ::pcre2_get_ovector_pointer(matcher_->data);
  const bool found = result >= 0 && range[0] < range[1];
  match_begin_ = found ? valid_begin_ + range[0] : valid_end_;
  match_end_ = found ? valid_begin_ + range[1] : valid_end_;
}

}  // namespace spool
