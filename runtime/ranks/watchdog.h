#pragma once

// Sees to it that this process ends where ranks cannot go on.  A device that waits for a rank that
// does not come waits for ever, and the host waits for the device: so a thread looks after what
// they exchange, aborts it, and ends the process if it is stuck even then.

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace spool {

// What this process says as it is ended because it is stuck; by default it logs the error, unless
// another rank tells it.  Set it before its ranks begin.
using LastWords = std::function<void(int rank, const std::exception_ptr&)>;
void set_last_words(LastWords);
void say_last_words(int rank, const std::exception_ptr&);

// Ends the process by _exit(1) unless it is destroyed within so many seconds, in which this process
// itself was not stopped.  Before that it calls say(), for two seconds at most.
class Deadline {
 public:
  Deadline(double seconds, std::function<void()> say);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  void run(double seconds);

  std::function<void()> say_;
  std::mutex mutex_;
  std::condition_variable changes_;
  bool is_over_ = false;
  std::thread thread_;
};

class Watchdog {
 public:
  struct Work {
    // Called each tenth of a second; throws why the exchanges cannot go on.  `passed` are the
    // seconds since the last call, less those in which this process was stopped.
    std::function<void(double passed)> look;
    // Called once, after an error, and may hang.
    std::function<void()> abort;
    // Called if the process is stuck, before it ends.
    std::function<void(const std::exception_ptr&)> say;
  };
  // Seconds from an error until the host is back, which destroys the watchdog.  With those in which
  // it says why all is over five seconds after an error.
  static constexpr double patience = 3;

  explicit Watchdog(Work);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The exchanges cannot go on: the first error counts.  Returns when they are aborted.
  void end(const std::exception_ptr&);
  bool has_ended() const;
  // Throws the error for which they ended.
  void rethrow() const;
  // Calls f(error) as soon as there is one, before the abort.
  void at_end(std::function<void(std::exception_ptr)> f);
  // All is well, and the others may leave: nobody looks any more.
  void stop_looking();

 private:
  void run();
  void look(double passed);
  void keep(const std::exception_ptr&);
  void abort();

  const Work work_;
  mutable std::mutex mutex_;  // not had while others' code runs, but for `at_end_`
  std::condition_variable changes_;
  std::exception_ptr error_;
  std::function<void(std::exception_ptr)> at_end_;
  bool is_aborted_ = false, is_host_back_ = false, looks_ = true;
  std::mutex looking_;
  std::thread thread_;
};

}  // namespace spool
