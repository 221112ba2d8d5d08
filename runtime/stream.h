#pragma once

// A Stream is a queue of work on one device, and the only interface to the device: all allocation
// and all work go through a stream.  CpuStream runs work on a thread of its own, CudaStream
// enqueues it on a CUDA stream, and MetaStream only counts bytes and seconds.
//
// Memory is stream-ordered: allocating and freeing happen at once, on the calling thread, in
// program order, and freed memory is reused only by work that is enqueued later.  Queued work
// therefore has raw pointers and needs no owner.  Work that throws makes the stream fail: the next
// call rethrows the error, and so does every later one.
//
// One thread calls a stream, the first that does: arenas are not locked, and the order of the work
// would be left to chance.  A call from a second thread throws Error (invalid); a second thread
// that frees a tensor, where nothing can be thrown, ends the program with a message.  When the
// first thread has ended, the next that calls takes the stream over; adopt() does so before.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "spool/runtime/device.h"
#include "spool/runtime/memory/arena.h"
#include "spool/runtime/stream_thread.h"
#include "spool/runtime/trace.h"

namespace spool {

class Communicator;  // ranks/communicator.h

// A point in a stream that other streams can wait for.
struct Event {
  double time = 0;                         // seconds; set by a MetaStream
  std::shared_ptr<void> handle = nullptr;  // set by other streams
};

// Work that a stream has captured, to be replayed as a whole.
struct Graph {
  std::shared_ptr<void> handle = nullptr;
  explicit operator bool() const { return handle != nullptr; }
};

class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }
  // For people: "cpu (2 threads)", "cuda:0 (NVIDIA H200)".
  virtual std::string description() const = 0;
  // The device's architecture; on a MetaStream, that of the simulated device.
  const Architecture& architecture() const { return architecture_; }
  Arena& arena() { return *arena_; }
  const MemoryStats& memory() const { return arena_->stats(); }

  // Makes the calling thread the one that calls this stream, its side streams and its streams on
  // the host, and frees their tensors.  The previous thread must not do so any more, unless it
  // adopts the stream again; something must order the two threads, such as a mutex or a join.
  // Queued work goes on.
  void adopt() { thread_->adopt(); }
  // For implementations.  Throws unless the calling thread may call this stream; `call` is the
  // call's name in the error.
  void check_thread(const char* call) const {
    if (!thread_->is_calling()) [[unlikely]]
      claim_thread(call);
  }
  // As check_thread(), for destructors: ends the program.
  void check_freeing_thread() const noexcept {
    if (!thread_->is_calling()) [[unlikely]]
      claim_freeing_thread();
  }
  // Whether the calling thread is the one that calls this stream.
  bool is_called_here() const { return thread_->is_calling(); }
  // From now on this stream is called by the thread that calls the other one.
  void follow_thread_of(const Stream& other) { thread_ = other.thread_; }

  // The ranks that train together with this one; null if the stream computes alone.
  Communicator* ranks() const { return ranks_.get(); }
  void join(std::shared_ptr<Communicator> ranks) { ranks_ = std::move(ranks); }

  // While it does, Parameters::add() notes what a model adds and allocates nothing: for a rank that
  // has parts of a model's parameters.
  void declare_parameters(bool only) { declares_parameters_ = only; }
  bool declares_parameters() const { return declares_parameters_; }

  // Number of kernels launched so far.
  uint64_t launches() const { return launches_; }
  void count_launch(uint64_t times = 1) { launches_ += times; }

  // Starts tracing this stream; null stops it.
  void trace(std::shared_ptr<Trace> to, TraceLane lane = TraceLane::compute);
  Trace* trace() const { return trace_.get(); }
  // Uses the other stream's trace, in its own lane.
  void trace_with(const Stream& other, TraceLane lane) {
    if (trace_ != other.trace_) [[unlikely]]
      trace(other.trace_, lane);
  }

  // Enqueues poison() or unpoison() of poison.h, if the host can address the device's memory; never
  // throws.
  using Poison = void (*)(const void* data, size_t bytes);
  virtual void enqueue_poison(Poison, const std::byte* /*data*/, size_t /*bytes*/) {}

  // Destroys an object on the thread that calls the stream, once all work enqueued so far is done:
  // at once if it is, else in a later call of the stream, synchronize() or read() at the latest, or
  // in its destructor.  Never throws.
  virtual void destroy_after_work(std::shared_ptr<void> object) = 0;
  // Objects that other threads hand in, destroyed in the same calls.
  const std::shared_ptr<Disposal>& disposal() const { return disposal_; }

  // Copies within the device.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // Copies from the host; `host` may be changed once it returns.
  virtual void upload(void* to, const void* host, size_t bytes) = 0;
  // Uploads `bytes` bytes, all of which fill() writes: into the destination itself if the host can
  // address the device's memory, else into a buffer.
  using Fill = std::function<void(std::span<std::byte>)>;
  virtual void upload(void* to, size_t bytes, const Fill& fill) = 0;
  // Copies to the host after all work before it, and waits.  Throws on meta, which has no values.
  virtual void download(void* host, const void* from, size_t bytes) = 0;

  // A second stream on the same device and memory, for copies; only events order the two.
  virtual std::unique_ptr<Stream> side_stream() = 0;
  // Page-aligned host memory that the device copies at full speed (pinned, on a GPU).  Throws Error
  // (memory) if there is not enough.
  virtual std::shared_ptr<std::byte> host_memory(size_t bytes) = 0;
  // Enqueue copies to and from memory of host_memory(), which the host must leave alone until they
  // are done.
  virtual void copy_out(void* host, const void* from, size_t bytes) = 0;
  virtual void copy_in(void* to, const void* host, size_t bytes) = 0;
  // Enqueues work for a thread of the host; work that throws makes the stream fail.  On meta it
  // takes `seconds`.
  virtual void host_work(const char* name, double seconds, std::function<void()> work) = 0;
  // A stream of the host's processors on the memory of the arena; only synchronize() orders it with
  // this stream.
  virtual std::unique_ptr<Stream> on_host(std::shared_ptr<Arena>) = 0;

  // Calls work(0), ..., work(count - 1), of which all but the first and the last do the same to
  // memory: the same allocations and frees, in the same order.  A layout has one set of offsets for
  // them (memory/repetition.h), and a MetaStream may run only one of them.  Throws Error (invalid)
  // unless each of them leaves memory as it was.  Repeats nest.
  virtual void repeat(size_t count, const std::function<void(size_t)>& work);

  virtual Event record() = 0;
  virtual void wait(const Event&) = 0;
  // Waits for all work, even if the stream has failed; then rethrows its error.
  virtual void synchronize() = 0;

  // Whether the device can capture graphs.  If so, capture() calls work(), which allocates, frees
  // and launches as usual but neither uploads nor reads, and returns its launches without running
  // them; replay() enqueues them, on the same addresses.
  virtual bool captures() const { return false; }
  virtual Graph capture(const std::function<void()>& work);
  virtual void replay(const Graph&);

 protected:
  Stream(Device device, const Architecture& architecture, std::shared_ptr<Arena> arena);
  struct SideStream {};  // a second stream on the same device and memory
  Stream(SideStream, const Stream& s)
      : device_(s.device_), architecture_(s.architecture_), arena_(s.arena_), thread_(s.thread_) {}
  // For destructors of streams, on any thread: destroys what disposal() still has.
  void destroy_last() {
    if (!disposal_->is_empty()) adopt();
    disposal_->destroy();
  }
  // The span of work that is about to be enqueued.  Needs a trace.
  TraceSpan span(const char* name, Activity, size_t bytes = 0) const;

 private:
  void claim_thread(const char* call) const;
  void claim_freeing_thread() const noexcept;

  Device device_;
  Architecture architecture_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<Disposal> disposal_ = std::make_shared<Disposal>();
  std::shared_ptr<StreamThread> thread_ = std::make_shared<StreamThread>();
  std::shared_ptr<Communicator> ranks_ = nullptr;
  uint64_t launches_ = 0;
  bool declares_parameters_ = false;
  std::shared_ptr<Trace> trace_ = nullptr;
  TraceLane lane_ = TraceLane::compute;
};

// Traces the stream during its lifetime.
class Traced {
 public:
  Traced(Stream& stream, std::shared_ptr<Trace> trace) : stream_(stream) {
    stream.trace(std::move(trace));
  }
  ~Traced() { stream_.trace(nullptr); }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

 private:
  Stream& stream_;
};

class CudaStream;  // runtime/cuda/stream.h

// Throws if there is no such device, or this build cannot use it.
void check_device(Device);

// A stream on the device with an arena of exactly `budget` bytes.  `threads` is for the cpu; 0: one
// for each core that this process may use.  Throws if there is no such device, or it does not have
// enough memory.
std::unique_ptr<Stream> open_stream(Device, size_t budget, int threads = 0);

// Bytes of memory available to this process.  Cpu: the machine's memory, or the limit of the
// control group if that is lower.  GPU: its free memory, less an allowance for its libraries.
size_t device_memory(Device);

// The device that SPOOL_DEVICE in the environment names; else the first GPU that this build can
// use; else the cpu.
Device default_device();

}  // namespace spool
