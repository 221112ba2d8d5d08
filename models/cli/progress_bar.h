#pragma once

// Shows the progress of work whose total is known, on standard error: on a terminal a bar that is
// rewritten in place, elsewhere a line every few seconds.  Short work shows nothing.

#include <chrono>
#include <cstddef>
#include <string>

namespace spool {

class ProgressBar {
 public:
  static constexpr const char* bytes = "bytes";

  // `what` names the work, such as "encoding"; `unit` is counted.
  explicit ProgressBar(std::string what, std::string unit = bytes);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Units done, of the total.
  void operator()(size_t done, size_t total);

 private:
  using Clock = std::chrono::steady_clock;

  std::string amount(double n) const;

  std::string what_, unit_;
  bool terminal_;
  bool open_ = false;  // the last line on the terminal is not ended yet
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace spool
