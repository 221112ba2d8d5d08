#pragma once

// Threads that share the pieces of one loop at a time.  Each thread takes the next piece when it is
// free; a piece's result must not depend on the thread or on the number of threads.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace spool {

// Starts a thread; throws Error (device) if the system starts no more.
std::thread start_thread(std::function<void()> work);

// Processor time so far, in seconds: of a thread; of the calling thread; of all threads of the
// process.
double processor_seconds(std::thread& thread);
double thread_processor_seconds();
double process_processor_seconds();

class ThreadPool {
 public:
  // The caller of run() counts as one of the threads.  Throws if the system does not start them
  // all.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Processor time of its threads so far, in seconds, without callers of run().
  double processor_seconds();

  // Calls work(context, piece, lane) for every piece in [0, pieces), on any thread, in any order;
  // the lane is the number of the thread, below threads().  Returns when all are done; rethrows the
  // first error of a piece.
  using Work = void (*)(void* context, int64_t piece, int lane);
  void run(int64_t pieces, Work work, void* context);

 private:
  struct Loop {
    Work work = nullptr;
    void* context = nullptr;
    int64_t pieces = 0;
  };
  void run_worker(int lane);
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
