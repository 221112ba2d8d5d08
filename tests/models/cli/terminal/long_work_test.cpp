// runs: threads
// What the program shows on a terminal while it works for long.

#include "spool/models/cli/terminal/long_work.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/runtime/testing.h"

namespace spool {
namespace {

using testing::contains;

// Standard error is a terminal as long as this lives.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)), before_(::dup(STDERR_FILENO)) {
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) return;
    const int terminal = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    is_open_ = terminal >= 0 && ::dup2(terminal, STDERR_FILENO) >= 0;
    ::close(terminal);
  }
  ~Terminal() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(master_);
  }
  bool is_open() const { return is_open_; }

  // Waits until these words are written.
  bool shows(const std::string& words) {
    char some[256];
    ::pollfd waiting{.fd = master_, .events = POLLIN, .revents = 0};
    while (!contains(text_, words)) {
      constexpr int max_wait = 60'000;  // milliseconds
      if (::poll(&waiting, 1, max_wait) <= 0) return false;
      const ssize_t n = ::read(master_, some, sizeof(some));
      if (n <= 0) return false;
      text_.append(some, static_cast<size_t>(n));
    }
    text_.clear();
    return true;
  }

 private:
  int master_, before_;
  bool is_open_ = false;
  std::string text_;
};

const std::string clear_line = "\r\033[K";

TEST(LongWork, IsShownUntilItEnds) {
  Terminal terminal;
  if (!terminal.is_open()) GTEST_SKIP() << "no terminal at hand";
  WorkDisplay display;
  display({.what = "planning"});
  EXPECT_TRUE(terminal.shows(clear_line + "planning for "));
  display.hide();
  EXPECT_TRUE(terminal.shows(clear_line));
  display.show();
  EXPECT_TRUE(terminal.shows("planning for "));
  display({.what = "planning", .done = 1});
  EXPECT_TRUE(terminal.shows(clear_line));
  display({.what = "saving"});
  EXPECT_TRUE(terminal.shows("saving for "));
}

TEST(LongWork, ShowsABarForAPartWhoseExtentIsKnown) {
  Terminal terminal;
  if (!terminal.is_open()) GTEST_SKIP() << "no terminal at hand";
  WorkDisplay display;
  display({.what = "preparing"});
  EXPECT_TRUE(terminal.shows("preparing for "));
  for (size_t done = 0; done < 100; ++done) {  // long enough to be shown
    display({.what = "loading", .done = done, .total = 100, .unit = "rows"});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(terminal.shows("loading ["));
  display({.what = "loading", .done = 100, .total = 100, .unit = "rows"});
  EXPECT_TRUE(terminal.shows("preparing for "));
}

}  // namespace
}  // namespace spool
