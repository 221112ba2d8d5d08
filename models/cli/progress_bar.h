#pragma once

// A bar for work whose extent is known: on a terminal a line that changes in place, elsewhere a
// line every few seconds; nothing for work that is done at once.  On standard error.

#include <chrono>
#include <cstddef>
#include <string>

namespace spool {

class ProgressBar {
 public:
  static constexpr const char* bytes = "bytes";

  // What is done, to what: "encoding" bytes.
  explicit ProgressBar(std::string what, std::string unit = bytes);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void operator()(size_t done, size_t total);

 private:
  using Clock = std::chrono::steady_clock;

  std::string amount(double n) const;

  std::string what_, unit_;
  bool terminal_;
  bool open_ = false;  // a line without its end is on the terminal
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace spool
