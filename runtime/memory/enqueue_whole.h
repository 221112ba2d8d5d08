#pragma once

// For copies beside a device's work, whose memory must outlive what was enqueued of them.

namespace spool {

// Waits for a stream's work, or a link's, and leaves its errors to the next call.
template <class Queue>
void wait_quietly(Queue& queue) noexcept {
  try {
    queue.synchronize();
  } catch (...) {
  }
}

// Enqueues some work.  If that fails halfway, waits for what was enqueued, before its memory is
// freed.
template <class Queue, class Work>
void enqueue_whole(Queue& queue, const Work& work) {
  try {
    work();
  } catch (...) {
    wait_quietly(queue);
    throw;
  }
}

}  // namespace spool
