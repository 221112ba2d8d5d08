#include "spool/models/tokenizers/regex_syntax.h"

#include <algorithm>

#include "spool/runtime/check.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

// Unicode's White_Space and all other characters, to be put into brackets.
constexpr std::string_view white_space =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f})"
    R"(\x{3000})";
constexpr std::string_view other_than_white_space =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

bool is_letter_or_digit(char c) {
  return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9');
}

class RegexSpelling {
 public:
  explicit RegexSpelling(std::string_view rest) : rest_(rest) {}

  std::string spell() {
    while (!rest_.empty()) {
      if (rest_[0] == '\\') {
        escape();
      } else if (in_class_) {
        in_class();
      } else {
        outside_class();
      }
    }
    return std::move(out_);
  }

 private:
  void copy(size_t size) {
    out_ += rest_.substr(0, size);
    rest_.remove_prefix(std::min(size, rest_.size()));
  }

  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorKind::invalid, "the regular expression has ", excerpt(std::string(what)),
         ", which is not supported");
  }

  void in_class() {
    if (rest_[0] == '[') refuse("[ within brackets");
    if (rest_.starts_with("&&")) refuse("&&");
    in_class_ = rest_[0] != ']';
    copy(1);
  }

  void outside_class() {
    if (rest_[0] == '(') return group();
    in_class_ = rest_[0] == '[';
    copy(1);
    if (in_class_ && rest_.starts_with('^')) copy(1);
    if (in_class_ && rest_.starts_with(']')) refuse("empty brackets");
  }

  void group() {
    constexpr std::string_view known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const auto found = std::ranges::find_if(known, [&](auto g) { return rest_.starts_with(g); });
    if (found != std::end(known)) return copy(found->size());
    if (rest_.starts_with("(?") || rest_.starts_with("(*")) refuse(rest_.substr(0, 3));
    copy(1);
  }

  void replace(std::string_view characters) {
    rest_.remove_prefix(2);
    out_ += in_class_ ? std::string(characters) : sentence('[', characters, ']');
  }

  void escape() {
    check(rest_.size() > 1, "the regular expression ends with a backslash");
    const char c = rest_[1];
    if (c == 's') return replace(white_space);
    if (c == 'S') return replace(other_than_white_space);
    if (c == 'd') return replace(R"(\p{Nd})");
    if (c == 'D') return replace(R"(\P{Nd})");
    if (c == 'u') return code_unit();
    const bool known = std::string_view("pPrntfx").find(c) != std::string_view::npos;
    if (is_letter_or_digit(c) && !known) refuse(rest_.substr(0, 2));
    copy(2);
    if (c != 'p' && c != 'P' && c != 'x') return;
    if (rest_.starts_with('{')) copy(rest_.find('}') == rest_.npos ? 1 : rest_.find('}') + 1);
  }

  // \uHHHH, of four hexadecimal digits.
  void code_unit() {
    const std::string_view digits = rest_.substr(2, 4);
    if (digits.size() < 4 || !std::ranges::all_of(digits, is_letter_or_digit)) refuse("\\u");
    out_ += sentence("\\x{", digits, '}');
    rest_.remove_prefix(6);
  }

  std::string_view rest_;
  std::string out_;
  bool in_class_ = false;
};

}  // namespace

std::string in_pcre2(std::string_view expression) { return RegexSpelling(expression).spell(); }

}  // namespace spool
