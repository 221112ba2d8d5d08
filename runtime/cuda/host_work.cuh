#pragma once

// Work that a CUDA stream does on a thread of the host, in order with its kernels.  CUDA accepts no
// error from such work, so the first is kept, later work does nothing, and the stream rethrows it.

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace spool::cuda {

// The first error of work on the host.
struct HostFailure {
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<bool> failed = false;

  void keep(std::exception_ptr thrown) {
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(thrown);
    failed = true;
  }
  void rethrow() {
    if (!failed) return;
    const std::lock_guard lock(mutex);
    std::rethrow_exception(error);
  }
};

struct HostWork {
  std::function<void()> work;
  std::shared_ptr<HostFailure> failure;

  // Called by CUDA, which accepts no error.
  static void run(void* self) {
    const std::unique_ptr<HostWork> owner(static_cast<HostWork*>(self));
    if (owner->failure->failed) return;
    try {
      owner->work();
    } catch (...) {
      owner->failure->keep(std::current_exception());
    }
  }
};

}  // namespace spool::cuda
