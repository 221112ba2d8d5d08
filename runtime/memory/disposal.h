// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Objects that one thread is to destroy, and that any thread may hand in: the owners of memory that
// a stream's work used, and tensors that another program has read.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace spool {

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
  // Destroys what is there.  Their destructors may hand in more, which stays.
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
