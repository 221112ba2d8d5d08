#pragma once

// The thread that may call a stream, and the objects that other threads leave it to destroy.

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace spool {

// The first thread that calls the stream, until it ends or another adopts the stream.  Streams that
// belong together share one of these.  The check is a comparison.
class StreamThread {
 public:
  // Whether the calling thread is the stream's.
  bool is_calling() const { return thread_.load(std::memory_order_relaxed) == ::pthread_self(); }
  // Makes the calling thread the stream's, unless another one is that still runs; returns whether
  // it is now.
  bool claim();
  // Makes the calling thread the stream's.
  void adopt();

 private:
  void set_to_calling();

  std::atomic<pthread_t> thread_ = {};
  std::mutex mutex_;
  std::weak_ptr<const void> life_ = {};  // expires when the thread ends
};

// Objects that any thread may hand in for one thread to destroy: the owners of memory that a
// stream's work used, and tensors that another program has read.
class Disposal {
 public:
  void add(std::shared_ptr<void> object) {
    const std::lock_guard lock(mutex_);
    objects_.push_back(std::move(object));
  }
  bool is_empty() {
    const std::lock_guard lock(mutex_);
    return objects_.empty();
  }
  // Destroys the objects.  What their destructors hand in stays.
  void destroy() {
    std::vector<std::shared_ptr<void>> objects;  // outlives the lock
    const std::lock_guard lock(mutex_);
    objects.swap(objects_);
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> objects_;
};

}  // namespace spool
