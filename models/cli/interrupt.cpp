#include "spool/models/cli/interrupt.h"

#include <signal.h>

#include <atomic>

namespace spool {
namespace {

std::atomic<bool> seen = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void interrupt(int signal) {
  if (!seen.exchange(true)) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void hang_up(int /*signal*/) { seen = true; }

}  // namespace

bool is_ignored(int signal) {
  struct sigaction action = {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void catch_interrupts() {
  // Without SA_RESTART, so that a signal ends a wait for input.
  struct sigaction action = {};
  action.sa_handler = interrupt;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = hang_up;
  for (const int signal : {SIGHUP, SIGUSR1}) {
    if (!is_ignored(signal)) ::sigaction(signal, &action, nullptr);
  }
}

void leave_interrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::signal(signal, SIG_IGN);
}

void outlive_readers() { ::signal(SIGPIPE, SIG_IGN); }

bool interrupted() { return seen; }
void clear_interrupt() { seen = false; }

}  // namespace spool
