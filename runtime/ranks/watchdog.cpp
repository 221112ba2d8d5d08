#include "spool/runtime/ranks/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>

#include "spool/runtime/log.h"
#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace {

constexpr double period = 0.1;  // seconds

std::chrono::duration<double> a_period() { return std::chrono::duration<double>(period); }

void log_why(int rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RankEnded& e) {
    if (e.loss() != RankLoss::another_tells) logger().error("{}", e.what());
  } catch (const std::exception& e) {
    logger().error("rank {}: {}", rank, e.what());
  }
}

LastWords& last_words() {
  static auto& words = *new LastWords(log_why);
  return words;
}

// What it says may need a lock that a thread has which is stuck.
[[noreturn]] void end_process(const std::function<void()>& say) {
  std::signal(SIGALRM, [](int) { ::_exit(1); });
  sigset_t alarm;
  ::sigemptyset(&alarm);
  ::sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::alarm(2);
  say();
  ::_exit(1);
}

}  // namespace

void set_last_words(LastWords words) { last_words() = std::move(words); }

void say_last_words(int rank, const std::exception_ptr& error) { last_words()(rank, error); }

Deadline::Deadline(double seconds, std::function<void()> say)
    : say_(std::move(say)), thread_([this, seconds] { run(seconds); }) {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changes_.notify_all();
  thread_.join();
}

void Deadline::run(double seconds) {
  std::unique_lock lock(mutex_);
  double last = host_clock();
  while (seconds > 0) {
    if (changes_.wait_for(lock, a_period(), [&] { return is_over_; })) return;
    const double now = host_clock();
    seconds -= std::min(now - last, 2 * period);
    last = now;
  }
  lock.unlock();
  end_process(say_);
}

Watchdog::Watchdog(Work work) : work_(std::move(work)), thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_host_back_ = true;
  }
  changes_.notify_all();
  thread_.join();
}

void Watchdog::end(const std::exception_ptr& error) {
  keep(error);
  std::unique_lock lock(mutex_);
  changes_.wait(lock, [&] { return is_aborted_; });
}

void Watchdog::keep(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
    if (at_end_) at_end_(error);
  }
  changes_.notify_all();
}

bool Watchdog::has_ended() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void Watchdog::rethrow() const {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void Watchdog::at_end(std::function<void(std::exception_ptr)> f) {
  const std::lock_guard lock(mutex_);
  at_end_ = std::move(f);
  if (error_) at_end_(error_);
}

// Waits for a look that is under way, which another rank's leaving would deceive.
void Watchdog::stop_looking() {
  const std::lock_guard one_at_a_time(looking_);
  looks_ = false;
}

void Watchdog::run() {
  double last = host_clock();
  std::unique_lock lock(mutex_);
  while (!changes_.wait_for(lock, a_period(), [&] { return is_host_back_ || error_; })) {
    const double now = host_clock();
    lock.unlock();
    look(std::min(now - last, 2 * period));
    last = now;
    lock.lock();
  }
  lock.unlock();
  abort();
}

void Watchdog::look(double passed) {
  const std::lock_guard one_at_a_time(looking_);
  if (!looks_) return;
  try {
    work_.look(passed);
  } catch (...) {
    keep(std::current_exception());
  }
}

void Watchdog::abort() {
  std::unique_lock lock(mutex_);
  if (!error_) return;
  lock.unlock();
  const Deadline deadline(patience, [this] { work_.say(error_); });
  work_.abort();
  lock.lock();
  is_aborted_ = true;
  changes_.notify_all();
  changes_.wait(lock, [&] { return is_host_back_; });
}

}  // namespace spool
