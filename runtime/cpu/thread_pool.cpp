#include "spool/runtime/cpu/thread_pool.h"

#include <pthread.h>

#include <ctime>
#include <system_error>

#include "spool/runtime/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace spool {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// About ten microseconds: cheaper than a sleep and a wake-up.
constexpr int spins = 300;

template <class Done>
bool spin_until(Done done) {
  for (int i = 0; i < spins; ++i) {
    if (done()) return true;
    pause();
  }
  return false;
}

double read_clock(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double processor_seconds(std::thread& thread) {
  clockid_t clock{};
  const int status = ::pthread_getcpuclockid(thread.native_handle(), &clock);
  return status == 0 ? read_clock(clock) : 0;
}

double thread_processor_seconds() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

double process_processor_seconds() { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

std::thread start_thread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& e) {
    fail_setting(ErrorKind::device, {"threads"}, "cpu: the system starts no more threads (",
                 e.what(), "); use fewer threads");
  }
}

ThreadPool::ThreadPool(int threads) {
  try {
    for (int lane = 1; lane < threads; ++lane) {
      workers_.push_back(start_thread([this, lane] { run_worker(lane); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_ = true;
  ++generation_;
  generation_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::run(int64_t pieces, Work work, void* context) {
  if (workers_.empty() || pieces <= 1) {
    for (int64_t i = 0; i < pieces; ++i) work(context, i, 0);
    return;
  }
  loop_ = {work, context, pieces};
  next_ = 0;
  busy_ = static_cast<int>(workers_.size());
  error_ = nullptr;
  ++generation_;
  generation_.notify_all();
  take_pieces(loop_, 0);
  const auto done = [this] { return busy_.load() == 0; };
  if (!spin_until(done)) {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, done);
  }
  if (error_) std::rethrow_exception(error_);
}

double ThreadPool::processor_seconds() {
  double sum = 0;
  for (std::thread& worker : workers_) sum += spool::processor_seconds(worker);
  return sum;
}

void ThreadPool::run_worker(int lane) {
  uint64_t seen = 0;
  while (true) {
    if (!spin_until([&] { return generation_.load() != seen; })) generation_.wait(seen);
    if (stopping_) return;
    seen = generation_.load();
    take_pieces(loop_, lane);
    if (--busy_ == 0) {
      const std::lock_guard lock(mutex_);
      finished_.notify_one();
    }
  }
}

void ThreadPool::take_pieces(const Loop& loop, int lane) {
  try {
    for (int64_t i = next_++; i < loop.pieces; i = next_++) loop.work(loop.context, i, lane);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    next_ = loop.pieces;
  }
}

}  // namespace spool
