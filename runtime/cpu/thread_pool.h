#pragma once

// A few threads that share the pieces of one loop at a time.  Pieces are handed out one by one;
// what a piece computes must not depend on who computes it, nor on how many threads there are.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace spool {

// A thread, or an Error (device) that says the system will start no more.
std::thread start_thread(std::function<void()> work);

class ThreadPool {
 public:
  // The caller of run() is one of the threads.  Throws where the system will not start as many.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // work(context, piece, lane) for every piece in [0, pieces), on any thread, in any order; two
  // pieces of one lane never overlap, and lane < threads().  Returns when all are done; throws the
  // first error of a piece.
  using Work = void (*)(void* context, int64_t piece, int lane);
  void run(int64_t pieces, Work work, void* context);

 private:
  struct Loop {
    Work work = nullptr;
    void* context = nullptr;
    int64_t pieces = 0;
  };
  void serve(int lane);
  void stop();
  void take_pieces(const Loop& loop, int lane);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::atomic<uint64_t> generation_ = 0;
  std::atomic<bool> stopping_ = false;
  Loop loop_;
  std::atomic<int64_t> next_ = 0;
  std::atomic<int> busy_ = 0;
  std::exception_ptr error_;
};

}  // namespace spool
