#include "spool/runtime/cpu/stream.h"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/processor.h"
#include "spool/runtime/cpu/thread_pool.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/memory/poison.h"

namespace spool {
namespace {

// A reserved range of address space; the destructor returns it to the system.
class Reservation {
 public:
  explicit Reservation(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) {
      fail_memory({.what = "cpu: the budget",
                   .needed = bytes,
                   .advice = "use a smaller memory budget",
                   .settings = {"memory"}});
    }
    ::madvise(data_, bytes_, MADV_HUGEPAGE);
    poison_arena(data_, bytes_);
  }
  ~Reservation() {
    unpoison(data_, bytes_);
    ::munmap(data_, bytes_);
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

struct OwningArena {
  Reservation memory;
  Arena arena;
  explicit OwningArena(size_t bytes) : memory(bytes), arena(memory.data(), bytes, "cpu") {}
};

int64_t max_delay() {
  const char* value = std::getenv("SPOOL_CPU_DELAY");
  return value ? std::strtoll(value, nullptr, 10) : 0;
}

std::shared_ptr<Arena> reserve(size_t bytes) {
  check_processor();  // before the first of the stream's own code
  auto owner = std::make_shared<OwningArena>(bytes);
  return {owner, &owner->arena};
}

bool run_inline() {
  const char* value = std::getenv("SPOOL_CPU_INLINE");
  return value && std::string_view(value) != "0" && *value;
}

// The handle of an event: record() enqueues raise(), and wait() enqueues await().
struct Flag {
  std::mutex mutex;
  std::condition_variable changed;
  bool set = false;

  void raise() {
    const std::lock_guard lock(mutex);
    set = true;
    changed.notify_all();
  }
  // Returns whether it had to wait.
  bool await() {
    std::unique_lock lock(mutex);
    const bool waits = !set;
    changed.wait(lock, [this] { return set; });
    return waits;
  }
};

struct RaiseFlag {
  std::shared_ptr<Flag> flag;
  void operator()() const { flag->raise(); }
};

struct AwaitFlag {
  std::shared_ptr<PendingSpan> pending;
  std::shared_ptr<Flag> flag;
  void operator()() const {
    const double begin = pending ? host_clock() : 0;
    if (flag->await() && pending) pending->done({begin, host_clock()});
  }
};

struct ChangePoison {
  Stream::Poison apply;
  const std::byte* data;
  size_t bytes;
  void operator()() const { apply(data, bytes); }
};

// Hands an object to the thread that calls the stream.
struct HandBack {
  std::shared_ptr<Disposal> to;
  mutable std::shared_ptr<void> object;
  void operator()() const { to->add(std::move(object)); }
};

// Whether work runs even after its stream has failed.  Other streams go on, in the same order as
// without the failure: none waits forever, none runs ahead, and what they use is not poisoned.
bool runs_after_failure(const std::function<void()>& work) {
  if (work.target<RaiseFlag>() || work.target<AwaitFlag>() || work.target<HandBack>()) return true;
  const auto* const change = work.target<ChangePoison>();
  return change && change->apply == unpoison;
}

}  // namespace

struct CpuStream::Worker {
  explicit Worker(int threads) : pool(threads), max_delay(spool::max_delay()) {}

  // Delays a quarter of the work, by random times, so that orders differ widely.
  void delay() {
    const uint64_t draw =
        mix_bits(std::hash<const void*>{}(this) + golden_ratio_bits * ++delays) >> 16;
    if (draw % 4 != 0) return;
    std::this_thread::sleep_for(
        std::chrono::microseconds(static_cast<int64_t>(draw >> 2) % max_delay));
  }

  ThreadPool pool;
  int64_t max_delay;  // microseconds
  uint64_t delays = 0;
  std::mutex mutex;
  std::condition_variable ready, idle;
  std::deque<std::function<void()>> queue;
  bool working = false, stopping = false;
  std::atomic<bool> failed = false;
  std::exception_ptr error;
  std::thread thread;
};

CpuStream::CpuStream(size_t budget, int threads) : CpuStream(reserve(budget), threads) {}

CpuStream::CpuStream(std::shared_ptr<Arena> memory, int threads)
    : Stream({DeviceType::cpu}, this_processor(threads), std::move(memory)),
      tile_unit_(spool::tile_unit()),
      threads_(cpu().threads),
      inline_(run_inline()),
      worker_(std::make_unique<Worker>(threads_)) {
  start();
}

CpuStream::CpuStream(CpuStream& first)
    : Stream(SideStream{}, first),
      tile_unit_(first.tile_unit_),
      threads_(1),
      inline_(first.inline_),
      worker_(std::make_unique<Worker>(threads_)) {
  start();
}

void CpuStream::start() {
  if (!inline_) worker_->thread = start_thread([this] { run_worker(); });
}

CpuStream::~CpuStream() {
  if (worker_->thread.joinable()) {
    {
      const std::lock_guard lock(worker_->mutex);
      worker_->stopping = true;
    }
    worker_->ready.notify_one();
    worker_->thread.join();
  }
  destroy_last();
}

std::string CpuStream::description() const {
  return sentence("cpu (", threads(), threads() == 1 ? " thread)" : " threads)");
}

double CpuStream::processor_clock() {
  const double own = inline_ ? thread_processor_seconds() : processor_seconds(worker_->thread);
  return (own + worker_->pool.processor_seconds()) / threads();
}

void CpuStream::run_pieces(int64_t pieces, ThreadPool::Work run, void* context) {
  worker_->pool.run(pieces, run, context);
}

void CpuStream::push(std::function<void()> work) {
  bool wake = false;
  {
    const std::lock_guard lock(worker_->mutex);
    worker_->queue.push_back(std::move(work));
    wake = !worker_->working;
  }
  if (wake) worker_->ready.notify_one();
}

void CpuStream::run_worker() {
  Worker& w = *worker_;
  std::unique_lock lock(w.mutex);
  while (true) {
    w.working = false;
    if (w.queue.empty()) w.idle.notify_all();
    w.ready.wait(lock, [&w] { return !w.queue.empty() || w.stopping; });
    if (w.queue.empty()) return;
    w.working = true;
    while (!w.queue.empty()) {
      const auto work = std::move(w.queue.front());
      w.queue.pop_front();
      lock.unlock();
      if (w.max_delay > 0) w.delay();
      if (!w.failed || runs_after_failure(work)) attempt(work);
      lock.lock();
    }
  }
}

void CpuStream::keep_error() {
  const std::lock_guard lock(worker_->mutex);
  if (!worker_->error) worker_->error = std::current_exception();
  worker_->failed = true;
}

void CpuStream::rethrow() {
  if (!worker_->failed) return;
  const std::lock_guard lock(worker_->mutex);
  std::rethrow_exception(worker_->error);
}

void CpuStream::synchronize() {
  check_thread("synchronize()");
  if (!inline_) {
    std::unique_lock lock(worker_->mutex);
    worker_->idle.wait(lock, [this] { return worker_->queue.empty() && !worker_->working; });
  }
  disposal()->destroy();
  rethrow();
}

void CpuStream::enqueue_poison(Poison apply, const std::byte* data, size_t bytes) {
  if (inline_) return apply(data, bytes);
  push(ChangePoison{apply, data, bytes});
}

void CpuStream::destroy_after_work(std::shared_ptr<void> object) {
  disposal()->destroy();
  bool idle = true;
  if (!inline_) {
    const std::lock_guard lock(worker_->mutex);
    idle = worker_->queue.empty() && !worker_->working;
  }
  if (!idle) push(HandBack{disposal(), std::move(object)});
}

void CpuStream::enqueue_traced(const TraceSpan& span, std::function<void()> work) {
  const TraceClock clock = trace()->clock();
  enqueue([this, clock, pending = trace()->open(span), work = std::move(work)] {
    const double begin = now(clock);
    work();
    pending->done({begin, now(clock)});
  });
}

void CpuStream::enqueue_timed(const char* name, Activity activity, size_t bytes,
                              std::function<void()> work) {
  check_thread(name);
  if (trace()) return enqueue_traced(span(name, activity, bytes), std::move(work));
  enqueue(std::move(work));
}

// Runs on the calling thread, after all earlier work.
void CpuStream::run_now(const char* name, size_t bytes, const std::function<void()>& work) {
  check_thread(name);
  synchronize();
  const double begin = trace() ? host_clock() : 0;
  work();
  if (trace()) trace()->add(span(name, Activity::copy, bytes), {begin, host_clock()});
}

void CpuStream::enqueue_copy(const char* name, void* to, const void* from, size_t bytes) {
  enqueue_timed(name, Activity::copy, bytes, [=] { std::memcpy(to, from, bytes); });
}

void CpuStream::copy(void* to, const void* from, size_t bytes) {
  enqueue_copy("copy", to, from, bytes);
}

void CpuStream::upload(void* to, const void* host, size_t bytes) {
  constexpr size_t small = 64 * 1024;
  if (bytes > small) {  // waits rather than allocate a second copy
    return run_now("upload", bytes, [&] { std::memcpy(to, host, bytes); });
  }
  const auto* from = static_cast<const std::byte*>(host);
  enqueue_timed("upload", Activity::copy, bytes,
                [to, copy = std::vector<std::byte>(from, from + bytes)] {
                  if (!copy.empty()) std::memcpy(to, copy.data(), copy.size());
                });
}

void CpuStream::upload(void* to, size_t bytes, const Fill& fill) {
  run_now("upload", bytes, [&] { fill({static_cast<std::byte*>(to), bytes}); });
}

void CpuStream::download(void* host, const void* from, size_t bytes) {
  check_thread("download");
  synchronize();
  if (bytes) std::memcpy(host, from, bytes);
}

std::shared_ptr<std::byte> CpuStream::host_memory(size_t bytes) {
  std::shared_ptr<Reservation> pages;
  try {
    pages = std::make_shared<Reservation>(bytes);
  } catch (const Error&) {
    fail_memory({.what = "host: the slab for offloaded values",
                 .needed = bytes,
                 .advice = "offload less, or to a disk"});
  }
  unpoison(pages->data(), bytes);
  return {pages, pages->data()};
}

void CpuStream::host_work(const char* name, double, std::function<void()> work) {
  enqueue_timed(name, Activity::host, /*bytes=*/0, std::move(work));
}

Event CpuStream::record() {
  check_thread("record()");
  auto flag = std::make_shared<Flag>();
  enqueue(RaiseFlag{flag});
  return {.handle = flag};
}

void CpuStream::wait(const Event& event) {
  check_thread("wait()");
  if (!event.handle) return;
  const auto pending = trace() ? trace()->open(span("wait", Activity::wait)) : nullptr;
  enqueue(AwaitFlag{pending, std::static_pointer_cast<Flag>(event.handle)});
}

}  // namespace spool
