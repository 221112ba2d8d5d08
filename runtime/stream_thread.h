// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The thread that may call a stream: the first that does, until it ends or another adopts the
// stream.  Streams that belong together share one of these.  The check is a comparison.

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>

namespace spool {

class StreamThread {
 public:
  // Whether the calling thread is the stream's.
  bool is_calling() const { return thread_.load(std::memory_order_relaxed) == ::pthread_self(); }
  // The calling thread becomes the stream's, unless another is that has not ended; returns whether
  // it is now.
  bool claim();
  // The calling thread becomes the stream's.
  void adopt();

 private:
  void set_to_calling();

  std::atomic<pthread_t> thread_ = {};
  std::mutex mutex_;
  std::weak_ptr<const void> life_ = {};  // of the thread; expires when it ends
};

}  // namespace spool
