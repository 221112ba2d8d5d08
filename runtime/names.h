#pragma once

// The names of enumerators, said once: an enumeration lists them in order, and gets name() and
// parse() from here.
//
//   enum class Fruit : uint8_t { apple, pear };
//   template <>
//   inline constexpr std::array enumerator_names<Fruit>{"apple", "pear"};
//
//   name(Fruit::pear);      // "pear"
//   parse<Fruit>("apple");  // Fruit::apple; nothing for any other text
//   list_of<Fruit>();       // "apple, pear", for an error

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace spool {

// Specialise for an enumeration whose enumerators are 0, 1, 2, ...
template <class Enum>
inline constexpr std::array<const char*, 0> enumerator_names{};

template <class Enum>
concept NamedEnum = !enumerator_names<Enum>.empty();

template <NamedEnum Enum>
constexpr const char* name(Enum e) {
  return enumerator_names<Enum>[static_cast<size_t>(e)];
}

template <NamedEnum Enum>
constexpr std::optional<Enum> parse(std::string_view text) {
  for (size_t i = 0; i < enumerator_names<Enum>.size(); ++i) {
    if (text == enumerator_names<Enum>[i]) return static_cast<Enum>(i);
  }
  return {};
}

template <NamedEnum Enum>
std::string list_of() {
  std::string list;
  for (const char* each : enumerator_names<Enum>)
    list += (list.empty() ? "" : ", ") + std::string(each);
  return list;
}

}  // namespace spool
