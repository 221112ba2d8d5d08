#pragma once

// Errors are sentences a user can act on.  An Error has a kind and fields besides its sentence, so
// that a program can act on it too.  check() states a condition the caller must meet:
//
//   check(a.row() == b.row(), "linear: ", a.shape(), " by ", b.shape());
//
// An error about something that a user sets names it in words in its sentence, and by its key in
// the field `settings`, so that a command line can add its flags.

#include <cstddef>
#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace spool {

enum class ErrorKind {
  invalid,  // an argument, a shape or a setting that cannot work
  memory,   // more bytes than the arena has
  file,     // a file that is missing, unreadable, corrupt, or cannot be written
  device,   // a device that is absent or failed
  numeric,  // a value that is not finite
};

// What a program may want to know of an error; what does not apply is empty or zero.
struct ErrorFields {
  size_t needed = 0;    // bytes
  size_t capacity = 0;  // bytes
  std::string op = {};  // or tensor
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

// The condition is about settings that a user chose: check_setting(n > 0, {"batch"}, ...).
template <class... Parts>
void check_setting(bool ok, SettingKeys keys, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw Error(ErrorKind::invalid, sentence(parts...), {.settings = {keys.begin(), keys.end()}});
}
// A file that another setting would avoid.
template <class... Parts>
void check_file_setting(bool ok, const std::string& file, SettingKeys keys, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw Error(ErrorKind::file, sentence(file, ": ", parts...),
                {.file = file, .settings = {keys.begin(), keys.end()}});
}

// More bytes than there are.
template <class... Parts>
[[noreturn]] void fail_memory(size_t needed, size_t capacity, const Parts&... parts) {
  throw Error(ErrorKind::memory, sentence(parts...), {.needed = needed, .capacity = capacity});
}

}  // namespace spool
