// Public: one of the headers of docs/public-headers.md.
#pragma once

// The cpu device: a thread that runs a queue of work, so that ordering bugs show without a GPU, and
// a pool of threads that share the loops of a kernel.  With SPOOL_CPU_INLINE=1 in the environment
// the caller runs the work itself, at once, which is easier to debug.  With SPOOL_CPU_DELAY=N some
// work is delayed at random, by up to N microseconds, so that unordered work runs in a different
// order each time.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <variant>

#include "spool/runtime/integer.h"
#include "spool/runtime/stream.h"

namespace spool {

enum class TileUnit : uint8_t;  // runtime/cpu/tile_unit.h

// Not final: a test's fails where it chooses.
class CpuStream : public Stream {
 public:
  // Reserves `budget` bytes of address space; pages are allocated when first touched.  threads = 0:
  // one per usable core.  Throws if the reservation fails.
  explicit CpuStream(size_t budget, int threads = 0);
  // On the memory of an existing arena.
  explicit CpuStream(std::shared_ptr<Arena> memory, int threads = 0);
  // A second stream on the same memory, with one thread.
  explicit CpuStream(CpuStream& first);
  ~CpuStream() override;

  // Runs work() after all earlier work.  It must own everything it uses except arena memory.
  template <class Work>
  void enqueue(Work&& work) {
    check_thread("work");
    rethrow();
    if (inline_) {
      attempt(work);
      rethrow();
    } else {
      push(std::forward<Work>(work));
    }
  }

  // The same; the work has this name in a trace.
  template <class Work>
  void enqueue(const char* name, Work&& work) {
    check_thread(name);
    if (trace()) [[unlikely]] {
      return enqueue_traced(span(name, Activity::kernel), std::forward<Work>(work));
    }
    enqueue(std::forward<Work>(work));
  }

  // Calls body(begin, end) or body(begin, end, lane) for pieces of [0, n) of size `grain`; the last
  // may be shorter.  The pieces depend only on n and grain.  For kernels, on the stream's thread.
  template <class Body>
  void parallel_for(int64_t n, int64_t grain, Body&& body) {
    struct Loop {
      std::remove_reference_t<Body>& body;
      int64_t n, grain;
    } loop{body, n, grain < 1 ? 1 : grain};
    const auto run_piece = [](void* context, int64_t piece, int lane) {
      Loop& l = *static_cast<Loop*>(context);
      const int64_t begin = piece * l.grain, end = std::min(begin + l.grain, l.n);
      if constexpr (std::is_invocable_v<Body&, int64_t, int64_t, int>) {
        l.body(begin, end, lane);
      } else {
        l.body(begin, end);
      }
    };
    run_pieces(ceil_div(n, loop.grain), run_piece, &loop);
  }
  int threads() const { return threads_; }
  const CpuArchitecture& cpu() const { return std::get<CpuArchitecture>(architecture()); }
  // What tile_unit() said when the stream, or the first stream on its memory, was made.
  TileUnit tile_unit() const { return tile_unit_; }
  // Processor time of its threads so far, in seconds, divided by their number.
  double processor_clock();

  std::string description() const override;
  void enqueue_poison(Poison, const std::byte* data, size_t bytes) override;
  void destroy_after_work(std::shared_ptr<void> object) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void upload(void* to, const void* host, size_t bytes) override;
  void upload(void* to, size_t bytes, const Fill& fill) override;
  void download(void* host, const void* from, size_t bytes) override;
  std::unique_ptr<Stream> side_stream() override { return std::make_unique<CpuStream>(*this); }
  std::shared_ptr<std::byte> host_memory(size_t bytes) override;
  void copy_out(void* host, const void* from, size_t bytes) override {
    enqueue_copy("copy out", host, from, bytes);
  }
  void copy_in(void* to, const void* host, size_t bytes) override {
    enqueue_copy("copy in", to, host, bytes);
  }
  void host_work(const char* name, double seconds, std::function<void()> work) override;
  std::unique_ptr<Stream> on_host(std::shared_ptr<Arena> memory) override {
    auto host = std::make_unique<CpuStream>(std::move(memory), threads());
    host->follow_thread_of(*this);
    return host;
  }
  Event record() override;
  void wait(const Event&) override;
  void synchronize() override;

 private:
  struct Worker;  // its threads, and the queue of work

  void start();
  void run_pieces(int64_t pieces, void (*run)(void* context, int64_t piece, int lane),
                  void* context);
  double now(TraceClock clock) {
    return clock == TraceClock::wall ? host_clock() : processor_clock();
  }
  void enqueue_traced(const TraceSpan&, std::function<void()> work);
  void enqueue_timed(const char* name, Activity, size_t bytes, std::function<void()> work);
  void run_now(const char* name, size_t bytes, const std::function<void()>& work);
  void enqueue_copy(const char* name, void* to, const void* from, size_t bytes);
  void push(std::function<void()> work);
  void run_worker();
  template <class Work>
  void attempt(Work& work) {
    try {
      work();
    } catch (...) {
      keep_error();
    }
  }
  void keep_error();  // the exception being handled
  void rethrow();

  TileUnit tile_unit_;
  int threads_;
  bool inline_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace spool
