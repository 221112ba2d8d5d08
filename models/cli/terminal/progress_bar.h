#pragma once

// Shows the progress of work, on standard error: on a terminal a line that is rewritten in place,
// elsewhere a line every few seconds.  Short work shows nothing.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

namespace spool {

// From now on nothing is drawn: another process shows the same.
void hide_progress();

// Draws how far work is whose total is known.
class ProgressBar {
 public:
  static constexpr const char* bytes = "bytes";

  // `what` names the work, such as "encoding"; `unit` is counted.
  explicit ProgressBar(std::string what, std::string unit = bytes);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Units done, of the total.  Of all of them nothing is shown any more.
  void operator()(size_t done, size_t total);
  // For another line to be written.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::string amount(double n) const;

  std::string what_, unit_;
  bool terminal_;
  bool open_ = false;  // the last line on the terminal is not ended yet
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

// Draws the time that work of unknown length has taken, until this is destroyed.
class ElapsedTime {
 public:
  using Clock = std::chrono::steady_clock;

  ElapsedTime(std::string what, Clock::time_point start);
  ~ElapsedTime();
  ElapsedTime(const ElapsedTime&) = delete;
  ElapsedTime& operator=(const ElapsedTime&) = delete;

 private:
  void show();

  std::string what_;
  Clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace spool
