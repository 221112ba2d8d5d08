#pragma once

// An environment variable set for the length of a scope.

#include <cstdlib>
#include <optional>
#include <string>

namespace spool::testing {

class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~EnvironmentVariable() { set(before_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  void set(const std::optional<std::string>& value) {
    value ? ::setenv(name_, value->c_str(), /*overwrite=*/1) : ::unsetenv(name_);
  }

  const char* name_;
  std::optional<std::string> before_ = {};
};

}  // namespace spool::testing
