#pragma once

// A bar for work on bytes: on a terminal a line that changes in place, elsewhere a line every few
// seconds; nothing for work that is done at once.

#include <chrono>
#include <cstddef>
#include <string>

namespace spool {

class ByteProgress {
 public:
  // What is done, as in "encoding".
  explicit ByteProgress(std::string what);
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  void operator()(size_t done, size_t total);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool terminal_;
  bool open_ = false;  // a line without its end is on the terminal
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace spool
