#include "spool/autograd/notation/notation.h"

#include "spool/runtime/check.h"

namespace spool {
namespace {

bool is_index(char c) { return is_separable(c) || (c >= 'A' && c <= 'Z'); }

std::vector<std::string> terms(std::string_view list, std::string_view notation) {
  std::vector<std::string> all(1);
  for (const char c : list) {
    if (c == ',') {
      all.emplace_back();
      continue;
    }
    check(is_index(c), "index notation '", notation, "': '", c, "' is not a letter");
    check(all.back().find(c) == std::string::npos, "index notation '", notation, "': ", c,
          " stands twice in a term");
    all.back() += c;
  }
  return all;
}

}  // namespace

Notation parse_notation(std::string_view text) {
  constexpr std::string_view arrow = "->";
  const size_t at = text.find(arrow);
  check(at != std::string_view::npos, "index notation '", text, "' has no arrow");
  const std::string_view inputs = text.substr(0, at);
  Notation parsed{.inputs = terms(inputs, text),
                  .outputs = terms(text.substr(at + arrow.size()), text)};
  for (const std::string& term : parsed.outputs) {
    for (const char c : term) {
      const bool known = inputs.find(c) != std::string_view::npos;
      check(known || !is_separable(c), "index notation '", text, "': ", c,
            " is a separable index of an output, and of no input");
    }
  }
  return parsed;
}

}  // namespace spool
