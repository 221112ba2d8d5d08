#pragma once

// An op's attributes in words: "query heads 12, key heads 12".  Different numbers have different
// text, which is the same in every locale.

#include <charconv>
#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace spool {

struct Attribute {
  std::string_view name;
  std::string value;

  Attribute(std::string_view attribute, std::string_view word) : name(attribute), value(word) {}
  Attribute(std::string_view attribute, const char* word) : name(attribute), value(word) {}
  Attribute(std::string_view attribute, bool yes) : name(attribute), value(yes ? "yes" : "no") {}
  template <class Number>
  requires std::integral<Number> || std::floating_point<Number> Attribute(
      std::string_view attribute, Number x)
      : name(attribute) {
    char text[40];
    value.assign(text, std::to_chars(text, text + sizeof text, x).ptr);
  }
};

inline std::string in_words(std::initializer_list<Attribute> attributes) {
  std::string words;
  for (const Attribute& a : attributes) {
    words.append(words.empty() ? "" : ", ").append(a.name).append(" ").append(a.value);
  }
  return words;
}

}  // namespace spool
