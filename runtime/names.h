#pragma once

// Names of enumerators, and tables with an entry for each.  An enumeration lists its names in
// order:
//
//   enum class Fruit : uint8_t { apple, pear };
//   template <>
//   inline constexpr std::array enumerator_names<Fruit>{"apple", "pear"};
//
//   name(Fruit::pear);             // "pear"
//   parse<Fruit>("apple");         // Fruit::apple; nothing for any other text
//   list_of<Fruit>();              // "apple, pear", for an error
//   enumerators<Fruit>();          // Fruit::apple, Fruit::pear, for a loop
//   EnumArray<Fruit, int> prices;  // prices[Fruit::pear]

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace spool {

// Specialised for each enumeration with names; its enumerators are 0, 1, 2, ...
template <class Enum>
inline constexpr std::array<const char*, 0> enumerator_names{};

template <class Enum>
concept NamedEnum = !enumerator_names<Enum>.empty();

template <NamedEnum Enum>
constexpr const char* name(Enum e) {
  return enumerator_names<Enum>[static_cast<size_t>(e)];
}

template <NamedEnum Enum>
constexpr auto enumerators() {
  std::array<Enum, enumerator_names<Enum>.size()> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Enum>(i);
  return all;
}

template <NamedEnum Enum>
constexpr std::optional<Enum> parse(std::string_view text) {
  for (const Enum e : enumerators<Enum>()) {
    if (text == name(e)) return e;
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

template <NamedEnum Enum, class T>
struct EnumArray : std::array<T, enumerator_names<Enum>.size()> {
  constexpr T& operator[](Enum e) { return this->data()[static_cast<size_t>(e)]; }
  constexpr const T& operator[](Enum e) const { return this->data()[static_cast<size_t>(e)]; }
};

}  // namespace spool
