#include "spool/autograd/notation/notation.h"

#include <algorithm>

#include "spool/runtime/check.h"

namespace spool {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_index(char c) { return is_separable(c) || (c >= 'A' && c <= 'Z'); }

class NotationParser {
 public:
  explicit NotationParser(std::string_view text) : text_(text) {}

  Notation parse() {
    require(text_.find("->") != std::string_view::npos, " has no arrow");
    parsed_.inputs = terms();
    if (text_.substr(at_, 2) != "->") refuse_letter(" is not a letter");
    at_ += 2;
    parsed_.outputs = terms();
    if (at_ != text_.size()) refuse_letter(" is not a letter");
    check_indices();
    return std::move(parsed_);
  }

 private:
  template <class... Words>
  void require(bool holds, const Words&... words) const {
    check(holds, "index notation '", text_, "'", words...);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) { return peek() == c && (++at_, true); }
  [[noreturn]] void refuse_letter(const char* why) const {
    const std::string letter = sentence("'", text_.substr(at_, 1), "'");
    fail(ErrorKind::invalid, "index notation '", text_,
         "': ", at_ < text_.size() ? letter : "what follows its end", why);
  }

  std::vector<Term> terms() {
    std::vector<Term> all;
    do {
      Term& term = all.emplace_back();
      term.is_added = take('+');
      while (is_index(peek()) || peek() == '(') add_dimension(term);
    } while (take(','));
    return all;
  }

  void add_dimension(Term& term) {
    std::vector<int64_t> parts;  // empty: the dimension is the index itself
    const char index = take('(') ? take_parts(parts) : text_[at_++];
    require(!term.carries(index), ": ", index, " stands twice in a term");
    term.indices += index;
    const bool is_itself = parts.empty() || (parts.size() == 1 && parts.front() == 1);
    if (!is_itself) term.packed.emplace_back(index, std::move(parts));
    if (!take('*')) return;
    require(is_separable(index), ": * joins the parts along an index, and ", index,
            ", a capital letter, is not cut");
    if (!parsed_.is_joined(index)) parsed_.joined += index;
  }

  char take_parts(std::vector<int64_t>& parts) {
    char index = '\0';
    int64_t sum = 0;
    do {
      const int64_t units = is_digit(peek()) ? number() : 1;
      if (!is_index(peek())) refuse_letter(" is not the index of a part");
      require(!index || peek() == index, ": the parts of a dimension have the indices ", index,
              " and ", peek(), ", and have one");
      index = text_[at_++];
      parts.push_back(units);
      sum += units;
      require(sum <= max_units, ": parts of more than ", max_units, " units together");
    } while (take('+'));
    require(take(')'), ": a parenthesis is not closed");
    return index;
  }

  int64_t number() {
    int64_t n = 0;
    while (is_digit(peek())) {
      const int64_t digit = text_[at_++] - '0';
      require(n <= (max_units - digit) / 10, ": a part of more than ", max_units, " units");
      n = 10 * n + digit;
    }
    require(n > 0, ": a part of no units");
    return n;
  }

  void check_indices() const {
    for (const Term& term : parsed_.outputs) {
      require(!term.is_added, ": + marks what is added to a sum, an input, and '", term.indices,
              "' is an output");
      for (const char c : term.indices) {
        const bool known = std::ranges::any_of(parsed_.inputs,
                                               [=](const Term& input) { return input.carries(c); });
        require(known || !is_separable(c), ": ", c,
                " is a separable index of an output, and of no input");
        require(!parsed_.is_joined(c), ": ", c, " is joined, so no output has it, and '",
                term.indices, "' does");
      }
    }
  }

  // No dimension is longer: see Shape.
  static constexpr int64_t max_units = int64_t{1} << 59;

  std::string_view text_;
  size_t at_ = 0;
  Notation parsed_ = {};
};

const Term& term_at(const std::vector<Term>& terms, size_t i) {
  static const Term none;
  return i < terms.size() ? terms[i] : none;
}

}  // namespace

std::span<const int64_t> Term::parts(char index) const {
  static constexpr int64_t itself = 1;
  for (const auto& [packed_index, parts] : packed) {
    if (packed_index == index) return parts;
  }
  return {&itself, 1};
}

bool Term::is_plain(char index) const {
  return std::ranges::none_of(packed, [=](const auto& p) { return p.first == index; });
}

int64_t Term::units(char index) const {
  int64_t sum = 0;
  for (const int64_t part : parts(index)) sum += part;
  return sum;
}

Dimensions Term::dimensions(char index, int rank) const {
  const size_t at = indices.find(index);
  if (at == std::string::npos) return {};
  const int others = static_cast<int>(indices.size()) - 1, of_first = rank - others;
  check(of_first >= 0, "the indices '", indices, "' are too many for ", rank, " dimensions");
  if (at == 0) return {0, of_first};
  return {of_first + static_cast<int>(at) - 1, 1};
}

int64_t Term::extent(char index, const Shape& shape) const {
  const auto [first, count] = dimensions(index, shape.rank());
  int64_t whole = 1;
  for (int d = first; d < first + count; ++d) whole *= shape[d];
  if (is_plain(index)) return whole;
  const int64_t each = units(index);
  check(whole % each == 0, "the index ", index, " of '", text(), "' has parts of ", each,
        " units, into which ", shape, " does not divide");
  return whole / each;
}

std::string Term::text() const {
  std::string all = is_added ? "+" : "";
  for (const char index : indices) {
    if (is_plain(index)) {
      all += index;
      continue;
    }
    std::string sum;
    for (const int64_t part : parts(index)) {
      if (!sum.empty()) sum += '+';
      if (part != 1) sum += std::to_string(part);
      sum += index;
    }
    all += sentence("(", sum, ")");
  }
  return all;
}

const Term& Notation::input(size_t i) const { return term_at(inputs, i); }
const Term& Notation::output(size_t i) const { return term_at(outputs, i); }

std::string Notation::separable() const {
  std::string found;
  for (const Term& term : inputs) {
    for (const char c : term.indices) {
      if (is_separable(c) && found.find(c) == std::string::npos) found += c;
    }
  }
  return found;
}

Notation parse_notation(std::string_view text) { return NotationParser(text).parse(); }

}  // namespace spool
