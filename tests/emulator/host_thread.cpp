#include "host_thread.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "thread_sanitizer.h"

namespace emulator {
namespace {

// ThreadSanitizer sees no mutex here, which would order more than CUDA does: it is told what is.
class HostThread {
 public:
  void run(const std::function<void()>& work) {
    if (process_ != ::getpid()) start();
    work_ = &work;
    release(&work_);
    become(busy);
    wait_while(busy);
    acquire(&work_);
  }

 private:
  static constexpr int idle = 0, busy = 1;

  // A process that was forked has none.
  void start() {
    process_ = ::getpid();
    state_ = idle;
    sigset_t all, before;  // signals are for threads of the program
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { serve(); }).detach();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  void serve() noexcept {
    while (true) {
      wait_while(idle);
      acquire(&work_);
      (*work_)();
      release(&work_);
      become(idle);
    }
  }
  void become(int state) {
    __atomic_store_n(&state_, state, __ATOMIC_SEQ_CST);
    ::syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  void wait_while(int state) {
    while (__atomic_load_n(&state_, __ATOMIC_SEQ_CST) == state) {
      ::syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, state, nullptr, nullptr, 0);
    }
  }

  int state_ = idle;
  pid_t process_ = 0;
  const std::function<void()>* work_ = nullptr;
};

}  // namespace

void on_host_thread(const std::function<void()>& work) {
  static auto& thread = *new HostThread;  // it serves to the end of the process
  thread.run(work);
}

}  // namespace emulator
