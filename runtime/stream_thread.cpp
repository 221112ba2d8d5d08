#include "spool/runtime/stream_thread.h"

namespace spool {
namespace {

// Lives as long as the calling thread.
std::shared_ptr<const void> life_of_thread() {
  thread_local const auto life = std::make_shared<int>();
  return life;
}

}  // namespace

void StreamThread::set_to_calling() {
  life_ = life_of_thread();
  thread_.store(::pthread_self(), std::memory_order_relaxed);
}

bool StreamThread::claim() {
  const std::lock_guard lock(mutex_);
  if (is_calling()) return true;
  if (!life_.expired()) return false;
  set_to_calling();
  return true;
}

void StreamThread::adopt() {
  const std::lock_guard lock(mutex_);
  set_to_calling();
}

}  // namespace spool
