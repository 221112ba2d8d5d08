#include "spool/models/tokenizers/regex_syntax.h"

#include <algorithm>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

// Unicode's White_Space, and all other characters, for use in brackets.
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
    if (rest_.starts_with("-\\") && is_class_escape(rest_.substr(1))) refuse(rest_.substr(0, 3));
    in_class_ = rest_[0] != ']';
    copy(1);
  }

  void outside_class() {
    if (rest_[0] == '(') return group();
    if (rest_[0] == ')' && !groups_.empty()) groups_.pop_back();
    if (rest_[0] == '{') return braces();
    in_class_ = rest_[0] == '[';
    if (ignores_case() && (in_class_ || folds_to_several())) refuse_in_any_case();
    copy(1);
    if (in_class_ && rest_.starts_with('^')) copy(1);
    if (in_class_ && rest_.starts_with(']')) refuse("empty brackets");
  }

  void group() {
    constexpr std::string_view known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const auto found = std::ranges::find_if(known, [&](auto g) { return rest_.starts_with(g); });
    const bool is_known = found != std::end(known);
    if (!is_known && (rest_.starts_with("(?") || rest_.starts_with("(*"))) {
      refuse(rest_.substr(0, 3));
    }
    groups_.push_back(ignores_case() || (is_known && *found == "(?i:"));
    copy(is_known ? found->size() : 1);
  }

  bool ignores_case() const { return !groups_.empty() && groups_.back(); }

  // Whether the next character, matched in any case, may begin a sequence that is also one other
  // character, as ss is \xc3\x9f: PCRE2 does not know those.
  bool folds_to_several() const {
    const auto c = static_cast<unsigned char>(rest_[0]);
    if (c >= 0x80) return true;
    const char next = rest_.size() > 1 ? static_cast<char>(rest_[1] | 0x20) : '\0';
    const char small = static_cast<char>(c | 0x20);
    return (small == 'f' && (next == 'f' || next == 'i' || next == 'l')) ||
           (small == 's' && (next == 's' || next == 't'));
  }

  [[noreturn]] void refuse_in_any_case() const {
    refuse(sentence(rest_.substr(0, rest_[0] == '[' ? 1 : 2), " within (?i:"));
  }

  // A quantifier {2}, {2,} or {2,3}, or a literal brace.  Oniguruma also has {,3}, and reads {2}+
  // and {2}? in another way.
  void braces() {
    const size_t end = rest_.find('}');
    const std::string_view inside = rest_.substr(1, std::min(end, rest_.size()) - 1);
    constexpr std::string_view digits = "0123456789";
    const bool is_count = end != rest_.npos && !inside.empty() &&
                          inside.find_first_not_of("0123456789, ") == inside.npos;
    if (!is_count) return copy(1);
    const size_t comma = std::min(inside.find(','), inside.size());
    const bool is_plain =
        comma > 0 && inside.find_first_not_of(digits) >= comma &&
        (comma == inside.size() || inside.find_first_not_of(digits, comma + 1) == inside.npos);
    const std::string_view after = rest_.substr(end + 1);
    const bool is_exact = comma == inside.size();
    if (!is_plain) refuse(rest_.substr(0, end + 1));
    if (after.starts_with('+') || (is_exact && after.starts_with('?'))) {
      refuse(rest_.substr(0, end + 2));
    }
    copy(end + 1);
  }

  void replace(std::string_view characters) {
    rest_.remove_prefix(2);
    out_ += in_class_ ? std::string(characters) : sentence('[', characters, ']');
  }

  static bool is_class_escape(std::string_view text) {
    return text.size() > 1 && std::string_view("sSdDpP").find(text[1]) != std::string_view::npos;
  }

  void escape() {
    check(rest_.size() > 1, "the regular expression ends with a backslash");
    const std::string_view from = rest_;
    const bool is_class = is_class_escape(rest_);
    escape_one();
    // A range with a class as one of its ends.
    if (in_class_ && is_class && rest_.starts_with('-') && !rest_.starts_with("-]")) {
      refuse(from.substr(0, from.size() - rest_.size() + 1));
    }
  }

  void escape_one() {
    const char c = rest_[1];
    if (c == 's') return replace(white_space);
    if (c == 'S') return replace(other_than_white_space);
    if (c == 'd') return replace(R"(\p{Nd})");
    if (c == 'D') return replace(R"(\P{Nd})");
    if (c == 'u') return code_unit();
    if (c == 'x') return code_point_in_hexadecimal();
    if (c == 'p' || c == 'P') return property();
    const bool known = std::string_view("rntf").find(c) != std::string_view::npos;
    if (is_letter_or_digit(c) && !known) refuse(rest_.substr(0, 2));
    copy(2);
  }

  // \p{L}.  For PCRE2, \p{Han} includes the script's extensions; for Oniguruma it does not.
  void property() {
    const size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == rest_.npos) refuse(rest_.substr(0, 3));
    std::string_view name = rest_.substr(3, end - 3);
    const std::string_view spelt = rest_.substr(0, end + 1);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const bool is_category = name.size() <= 2;
    const auto is_of_name = [](char c) { return is_letter_or_digit(c) || c == '_'; };
    if (name.empty() || !std::ranges::all_of(name, is_of_name)) refuse(spelt);
    if (ignores_case() && (name == "Lu" || name == "Ll" || name == "Lt" || !is_category)) {
      refuse(sentence(spelt, " within (?i:"));
    }
    out_ += sentence('\\', rest_[1], '{', negated ? "^" : "", is_category ? "" : "sc:", name, '}');
    rest_.remove_prefix(end + 1);
  }

  // \xHH in ASCII, which Oniguruma reads as bytes, or \x{H...}.
  void code_point_in_hexadecimal() {
    constexpr std::string_view digits = "0123456789abcdefABCDEF";
    const bool has_braces = rest_.size() > 2 && rest_[2] == '{';
    const size_t end = has_braces ? rest_.find('}') : size_t{4};
    const size_t begin = has_braces ? 3 : 2;
    const std::string_view number =
        end == rest_.npos || end > rest_.size() ? "" : rest_.substr(begin, end - begin);
    const bool is_number = !number.empty() && number.find_first_not_of(digits) == number.npos;
    if (!is_number || (!has_braces && number[0] > '7')) refuse(rest_.substr(0, 4));
    copy(has_braces ? end + 1 : end);
  }

  // \uHHHH, with four hexadecimal digits.
  void code_unit() {
    const std::string_view digits = rest_.substr(2, 4);
    if (digits.size() < 4 || !std::ranges::all_of(digits, is_letter_or_digit)) refuse("\\u");
    out_ += sentence("\\x{", digits, '}');
    rest_.remove_prefix(6);
  }

  std::string_view rest_;
  std::string out_;
  bool in_class_ = false;
  std::vector<bool> groups_;  // by open group: whether case is ignored
};

}  // namespace

std::string in_pcre2(std::string_view expression) { return RegexSpelling(expression).spell(); }

}  // namespace spool
