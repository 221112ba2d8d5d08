#pragma once

// JSON from outside: whatever is wrong with it is a sentence that names the file.  Before anything
// is built of it, one pass sees to it that it is not nested deeply, has no key twice, and has not
// more values than any file of use, so that a small file cannot ask for much memory or time.

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace spool {

inline constexpr int max_json_depth = 16;

// `file` is for the sentences.
nlohmann::json parse_json(std::string_view text, const std::string& file,
                          int max_depth = max_json_depth);

// Throws if the file is missing, larger than a megabyte, or not JSON.
nlohmann::json read_json(const std::filesystem::path&);

// What a sentence shows of a value or a name that may be of any length, and of any characters; made
// when it is printed.
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

}  // namespace spool
