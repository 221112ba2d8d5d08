// Public: one of the headers of docs/public-headers.md.
#pragma once

// Error is a sentence a user can act on, with a kind and fields that a program can act on.  check()
// throws one unless a condition holds:
//
//   check(a.row() == b.row(), "linear: ", a.shape(), " by ", b.shape());
//
// An error about a setting names it in words in the sentence, and by its key in the field
// `settings`, so that a command line can add its flags.

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace spool {

enum class ErrorKind {
  invalid,  // an argument, a shape or a setting that cannot work
  memory,   // more bytes are needed than available
  file,     // a file that is missing, unreadable, corrupt, or cannot be written
  device,   // a device that is absent or failed
  numeric,  // a value that is not finite
};

// Details of an error; those that do not apply are empty or zero.
struct ErrorFields {
  size_t needed = 0;    // bytes
  size_t capacity = 0;  // bytes
  std::string op = {};  // name of the op or tensor
  std::string file = {};
  std::vector<std::string> settings = {};  // keys such as "batch"
};

using SettingKeys = std::initializer_list<const char*>;

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& sentence, ErrorFields fields = {})
      : std::runtime_error(sentence), kind_(kind), fields_(std::move(fields)) {}
  ErrorKind kind() const { return kind_; }
  const ErrorFields& fields() const { return fields_; }

 private:
  ErrorKind kind_;
  ErrorFields fields_;
};

template <class... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, sentence(parts...));
}

template <class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(ErrorKind::invalid, parts...);
}

template <class... Parts>
void check_file(bool ok, const std::string& file, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw Error(ErrorKind::file, sentence(file, ": ", parts...), {.file = file});
}

// Throws an error that other values of these settings would avoid.
template <class... Parts>
[[noreturn]] void fail_setting(ErrorKind kind, SettingKeys keys, const Parts&... parts) {
  throw Error(kind, sentence(parts...), {.settings = {keys.begin(), keys.end()}});
}

// A condition on settings: check_setting(n > 0, {"batch"}, ...).
template <class... Parts>
void check_setting(bool ok, SettingKeys keys, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail_setting(ErrorKind::invalid, keys, parts...);
}
// A condition on a file; the settings name the file, or other values of them would avoid it.
template <class... Parts>
void check_file_setting(bool ok, const std::string& file, SettingKeys keys, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw Error(ErrorKind::file, sentence(file, ": ", parts...),
                {.file = file, .settings = {keys.begin(), keys.end()}});
}

// A memory error, for more bytes than are available:
// "this run needs 3.00 GiB (3221225472 bytes), and 2.00 GiB (2147483648 bytes) are available; ..."
struct Shortage {
  std::string what;                        // subject of the sentence: "this run"
  size_t needed = 0;                       // bytes
  std::optional<size_t> available = {};    // bytes; empty: unknown
  std::string place = {};                  // where they are available: "in the budget"
  std::string advice = {};                 // the rest of the sentence
  std::string op = {};                     // name of the op or tensor
  std::vector<std::string> settings = {};  // keys
};
[[noreturn]] void fail_memory(const Shortage&);

}  // namespace spool
