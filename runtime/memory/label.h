#pragma once

// A Label is the name and the purpose of an allocation.
//
// A Name is text that lives as long as the process, and is as cheap to copy as a pointer.  It is
// made from a literal, at no cost, or from a std::string or std::string_view, which is looked up in
// a table of the process (a lock and a hash) and copied there once.  From any other `const char*`,
// whose text may be gone before the name is read, it does not compile:
//
//   Name a = "weight", b = "weight" + std::to_string(i);

#include <array>
#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "spool/runtime/names.h"

namespace spool {

class Name {
 public:
  consteval Name(const char* literal) : text_(literal) {}
  Name(std::string_view text);
  Name(const std::string& text) : Name(std::string_view(text)) {}

  // From text that is never freed but is known only when the program runs, such as Op::name().
  static constexpr Name never_freed(const char* text) { return Name(text, NeverFreed{}); }

  constexpr const char* c_str() const { return text_; }
  constexpr operator std::string_view() const { return text_; }

  friend constexpr bool operator==(Name a, Name b) {
    return a.text_ == b.text_ || std::string_view(a) == std::string_view(b);
  }
  template <class Text>
  requires(std::convertible_to<const Text&, std::string_view> &&
           !std::same_as<Text, Name>) friend constexpr bool
  operator==(Name a, const Text& b) {
    return std::string_view(a) == std::string_view(b);
  }
  friend std::ostream& operator<<(std::ostream&, Name);

 private:
  struct NeverFreed {};
  constexpr Name(const char* text, NeverFreed) : text_(text) {}

  const char* text_;
};

inline Name intern(std::string_view text) { return text; }

// Tables of memory and errors group bytes by purpose.
enum class Purpose : uint8_t {
  parameter,
  frozen,  // parameters that are not trained
  gradient,
  optimizer,
  activation,
  workspace,
  input,
  exchange
};
template <>
inline constexpr std::array enumerator_names<Purpose>{"parameters", "frozen",      "gradients",
                                                      "optimizer",  "activations", "workspace",
                                                      "inputs",     "exchange"};

struct Label {
  Name name = "tensor";
  Purpose purpose = Purpose::activation;
};

}  // namespace spool
