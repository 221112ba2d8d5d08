#include "spool/models/cli/terminal/progress_bar.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "spool/models/cli/terminal/width.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

bool is_hidden = false;

// In the place of the line before.  A longer one would wrap, and the next could not overwrite it.
std::string replacing(const std::string& line) {
  return cleared_line(STDERR_FILENO) + cut(line, terminal_width(STDERR_FILENO) - 1);
}

}  // namespace

void hide_progress() { is_hidden = true; }

ProgressBar::ProgressBar(std::string what, std::string unit)
    : what_(std::move(what)), unit_(std::move(unit)), terminal_(::isatty(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::clear() {
  if (std::exchange(open_, false)) std::fputs(cleared_line(STDERR_FILENO).c_str(), stderr);
}

std::string ProgressBar::amount(double n) const {
  return unit_ == bytes ? format_bytes(static_cast<size_t>(n)) : fmt::format("{:.0f} {}", n, unit_);
}

void ProgressBar::operator()(size_t done, size_t total) {
  if (done == total) return clear();
  if (is_hidden) return;
  const auto now = Clock::now();
  const std::chrono::duration<double> since = now - last_, all = now - start_;
  if (since.count() < (terminal_ ? 0.1 : 5.0)) return;
  last_ = now;
  constexpr size_t width = 30;
  const double fraction = static_cast<double>(done) / static_cast<double>(total);
  const double rate = static_cast<double>(done) / all.count();
  const std::string bar(static_cast<size_t>(fraction * width), '#');
  std::string line = fmt::format("{} [{:<{}}] {:.0f} % of {}", what_, bar, width, 100 * fraction,
                                 amount(static_cast<double>(total)));
  if (done > 0) {
    line += fmt::format(", {}/s, left {}", amount(rate),
                        format_seconds(static_cast<double>(total - done) / rate));
  }
  std::fputs((terminal_ ? replacing(line) : line + "\n").c_str(), stderr);
  open_ = terminal_;
  std::fflush(stderr);
}

ElapsedTime::ElapsedTime(std::string what, Clock::time_point start)
    : what_(std::move(what)), start_(start), thread_([this] { show(); }) {}

ElapsedTime::~ElapsedTime() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ElapsedTime::show() {
  const bool terminal = ::isatty(STDERR_FILENO);
  const auto every = terminal ? std::chrono::seconds(1) : std::chrono::seconds(5);
  bool open = false;  // the last line on the terminal is not ended yet
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, every, [this] { return ended_; })) {
    if (is_hidden) continue;
    const std::chrono::duration<double> taken = Clock::now() - start_;
    const std::string line = fmt::format("{} for {:.0f} s", what_, taken.count());
    std::fputs((terminal ? replacing(line) : line + "\n").c_str(), stderr);
    std::fflush(stderr);
    open = terminal;
  }
  if (open) std::fputs(cleared_line(STDERR_FILENO).c_str(), stderr);
}

}  // namespace spool
