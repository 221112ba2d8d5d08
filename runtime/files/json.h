#pragma once

// Reads JSON files that may be malformed or malicious.  One pass over the text checks its nesting,
// repeated keys and number of values before the JSON is built, so that a small file cannot take
// much memory or time.
//
// A JsonField is a value of such a file that knows its file and its path there.  It converts itself
// to what the caller needs, or throws an Error of kind file that names both:
//
//   const JsonField config = read_json("config.json");
//   const auto layers = config.member("n_layer").integer<int64_t>(1, 10000);
//   // config.json: field n_layer: 0 is not a whole number from 1 to 10000

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/names.h"

namespace spool {

// A value or a name in an error: shortened, and with unprintable characters escaped.  Formats when
// it is printed, so both must outlive it.
class Excerpt {
 public:
  explicit Excerpt(const nlohmann::json& value) : value_(&value) {}
  explicit Excerpt(std::string_view name) : name_(name) {}
  friend std::ostream& operator<<(std::ostream&, const Excerpt&);

 private:
  const nlohmann::json* value_ = nullptr;
  std::string_view name_;
};
inline Excerpt excerpt(const nlohmann::json& value) { return Excerpt(value); }
inline Excerpt excerpt(const std::string& name) { return Excerpt(std::string_view(name)); }

// Cheap to copy; keeps the whole file's JSON alive.
class JsonField {
 public:
  // All of a file; `file` is its name in errors.
  JsonField(nlohmann::json whole, std::string file);

  const std::string& file() const;
  // Its name if it is a member of an object, else empty.
  const std::string& key() const;
  const nlohmann::json& value() const { return *value_; }

  // A member of an object; both throw if the value is not an object.
  JsonField member(const char* key) const;  // throws if it is missing
  std::optional<JsonField> find(const char* key) const;
  // The same, of a member that is not null.
  std::optional<JsonField> present(const char* key) const;
  bool flag(const char* key, bool absent) const;  // `absent` if it is none
  // All members, in alphabetical order.
  std::vector<JsonField> members() const;
  // All items of a list.
  std::vector<JsonField> items() const;

  // A whole number in [min, max].
  template <std::integral T>
  T integer(T min = std::numeric_limits<T>::min(), T max = std::numeric_limits<T>::max()) const;
  double number() const;
  bool boolean() const;
  std::string string() const;
  template <NamedEnum Enum>
  Enum enumerator() const;
  bool is_null() const;
  bool is_list() const;
  bool is_string() const;

  // Throws "FILE: field a.b[2]: parts", or "FILE: parts" for all of a file.
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_about(path(), sentence(parts...));
  }
  template <class... Parts>
  void expect(bool ok, const Parts&... parts) const {
    if (!ok) [[unlikely]]
      refuse(parts...);
  }

 private:
  struct Whole;
  // The member of an object called *key, or else item `index` of a list.
  JsonField(std::shared_ptr<const JsonField> parent, const std::string* key, size_t index,
            const nlohmann::json& value);

  [[noreturn]] void fail_about(const std::string& path, const std::string& complaint) const;
  std::string path() const;  // "a.b[2]"; empty for all of a file
  void expect_object() const;
  int64_t signed_integer(int64_t min, int64_t max) const;
  uint64_t unsigned_integer(uint64_t min, uint64_t max) const;

  std::shared_ptr<const Whole> whole_;
  std::shared_ptr<const JsonField> parent_;  // null for all of a file
  const std::string* key_ = nullptr;
  size_t index_ = 0;
  const nlohmann::json* value_;
};

// Whether the text can be a string of JSON.
bool is_utf8(std::string_view text);

inline constexpr int max_json_depth = 16;
inline constexpr int64_t max_json_values = 1'000'000;

// Throws if the text is not JSON; `file` is its name in errors.
JsonField parse_json(std::string_view text, const std::string& file, int max_depth = max_json_depth,
                     int64_t max_values = max_json_values);

// Throws if the file is missing, larger than a megabyte, or not JSON.
JsonField read_json(const std::filesystem::path&);

template <std::integral T>
T JsonField::integer(T min, T max) const {
  if constexpr (std::signed_integral<T>) {
    return static_cast<T>(signed_integer(min, max));
  } else {
    return static_cast<T>(unsigned_integer(min, max));
  }
}

template <NamedEnum Enum>
Enum JsonField::enumerator() const {
  const std::optional<Enum> known = is_string() ? parse<Enum>(string()) : std::nullopt;
  expect(known.has_value(), excerpt(value()), " is none of ", list_of<Enum>());
  return *known;
}

}  // namespace spool
