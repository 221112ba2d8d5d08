#pragma once

// The cpu device: a thread that works off a queue, so that ordering bugs show without a GPU, and a
// pool that shares the loops of a kernel.  With SPOOL_CPU_INLINE=1 in the environment the caller
// does the work itself, at once, which is easier to debug.  With SPOOL_CPU_DELAY=N every piece of
// work is put off by up to N microseconds, at random, so that work that nothing orders runs in
// another order each time.

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

#include "spool/runtime/cpu/thread_pool.h"
#include "spool/runtime/stream.h"

namespace spool {

class CpuStream final : public Stream {
 public:
  // Reserves `budget` bytes of address space; pages are taken when first touched.  threads = 0: one
  // per core.  Throws where the reservation fails.
  explicit CpuStream(size_t budget, int threads = 0);
  // Over memory that somebody else has reserved.
  explicit CpuStream(std::shared_ptr<Arena> memory, int threads = 0);
  // A second queue over the same memory, with one thread.
  explicit CpuStream(CpuStream& beside);
  ~CpuStream() override;

  // Runs work() after all work before it.  It must own what it uses, but for arena memory.
  template <class Work>
  void enqueue(Work&& work) {
    rethrow();
    if (inline_) {
      attempt(work);
      rethrow();
    } else {
      push(std::forward<Work>(work));
    }
  }

  // Likewise a piece of work that a trace shows under this name.
  template <class Work>
  void enqueue(const char* name, Work&& work) {
    if (trace()) [[unlikely]] {
      return enqueue_traced(span(name, Activity::kernel), std::forward<Work>(work));
    }
    enqueue(std::forward<Work>(work));
  }

  // body(begin, end) or body(begin, end, lane) over [0, n) in pieces of `grain`, but the last one.
  // The pieces depend on n and grain alone.  For kernels, on the thread that works.
  template <class Body>
  void parallel_for(int64_t n, int64_t grain, Body&& body) {
    struct Loop {
      std::remove_reference_t<Body>& body;
      int64_t n, grain;
    } loop{body, n, grain < 1 ? 1 : grain};
    const auto piece_of = [](void* context, int64_t piece, int lane) {
      Loop& l = *static_cast<Loop*>(context);
      const int64_t begin = piece * l.grain, end = std::min(begin + l.grain, l.n);
      if constexpr (std::is_invocable_v<Body&, int64_t, int64_t, int>) {
        l.body(begin, end, lane);
      } else {
        l.body(begin, end);
      }
    };
    pool_.run((n + loop.grain - 1) / loop.grain, piece_of, &loop);
  }
  int threads() const { return pool_.threads(); }

  std::string description() const override;
  void mark(Mark how, const std::byte* data, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void upload(void* to, const void* host, size_t bytes) override;
  void upload(void* to, size_t bytes, const Fill& fill) override;
  void download(void* host, const void* from, size_t bytes) override;
  std::unique_ptr<Stream> side_stream() override { return std::make_unique<CpuStream>(*this); }
  std::shared_ptr<std::byte> host_memory(size_t bytes) override;
  void copy_out(void* host, const void* from, size_t bytes) override {
    move("copy out", host, from, bytes);
  }
  void copy_in(void* to, const void* host, size_t bytes) override {
    move("copy in", to, host, bytes);
  }
  void host_work(const char* name, double seconds, std::function<void()> work) override;
  std::unique_ptr<Stream> on_host(std::shared_ptr<Arena> memory) override {
    return std::make_unique<CpuStream>(std::move(memory), threads());
  }
  Event record() override;
  void wait(const Event&) override;
  void synchronize() override;

 private:
  void start();
  void enqueue_traced(const TraceSpan&, std::function<void()> work);
  void enqueue_as(const char* name, Activity, size_t bytes, std::function<void()> work);
  void do_now(const char* name, size_t bytes, const std::function<void()>& work);
  void move(const char* name, void* to, const void* from, size_t bytes);
  void push(std::function<void()> work);
  void serve();
  void put_off();
  template <class Work>
  void attempt(Work& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }
  void rethrow();

  ThreadPool pool_;
  bool inline_;
  int64_t longest_delay_;  // microseconds
  uint64_t delays_ = 0;
  std::mutex mutex_;
  std::condition_variable ready_, idle_;
  std::deque<std::function<void()>> queue_;
  bool working_ = false, stopping_ = false;
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
  std::thread worker_;
};

}  // namespace spool
