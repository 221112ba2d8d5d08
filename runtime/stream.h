#pragma once

// A Stream is a queue of work on one device, and the device's only face: whatever the engine does
// to memory or time it asks of a stream.  CpuStream works, on a thread of its own; CudaStream
// enqueues; MetaStream only keeps the books.
//
// Memory is ordered by the stream: allocating and freeing happen at once, on the calling thread, in
// program order; what is freed may serve only work that is enqueued later.  Queued work therefore
// holds raw pointers and needs no owner.  Work that fails makes the stream fail: the next call
// throws what the work threw, and so does every later one.  One thread calls a stream.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "spool/runtime/device.h"
#include "spool/runtime/memory/arena.h"
#include "spool/runtime/trace.h"

namespace spool {

// A point in a stream that other streams can wait for.
struct Event {
  double time = 0;                         // seconds, on a MetaStream
  std::shared_ptr<void> handle = nullptr;  // elsewhere
};

// Work that a stream has recorded, to be enqueued again as one.
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
  // Of the device that does the work: on a MetaStream, of the one it pretends to be.
  const Architecture& architecture() const { return architecture_; }
  Arena& arena() { return *arena_; }
  const MemoryStats& memory() const { return arena_->stats(); }

  // Kernels launched so far.
  uint64_t launches() const { return launches_; }
  void count_launch() { ++launches_; }

  // From here on the trace is told of all that this queue is given; null: nobody is.
  void trace(std::shared_ptr<Trace> to, TraceLane lane = TraceLane::compute);
  Trace* trace() const { return trace_.get(); }
  // Is traced where the other queue is, on a lane of its own.
  void trace_with(const Stream& other, TraceLane lane) {
    if (trace_ != other.trace_) [[unlikely]]
      trace(other.trace_, lane);
  }

  // Does how(data, bytes), of bounds.h, in its turn, if the host can reach the device's memory.
  // Never throws.
  using Mark = void (*)(const void* data, size_t bytes);
  virtual void mark(Mark, const std::byte* /*data*/, size_t /*bytes*/) {}

  // Within the device.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // From the host; the bytes have been taken when it returns.
  virtual void upload(void* to, const void* host, size_t bytes) = 0;
  // Likewise what fill() writes, all of it: in place where the host can reach the device's memory.
  using Fill = std::function<void(std::span<std::byte>)>;
  virtual void upload(void* to, size_t bytes, const Fill& fill) = 0;
  // To the host, after all work before it.  Throws on meta, where there is nothing to see.
  virtual void download(void* host, const void* from, size_t bytes) = 0;

  // Another queue on the same device and memory, for copies; what orders the two is events.
  virtual std::unique_ptr<Stream> side_stream() = 0;
  // Memory of the host that the device's copies reach at full speed (pinned, on a GPU),
  // page-aligned. Throws Error (memory) where there is not that much.
  virtual std::shared_ptr<std::byte> host_memory(size_t bytes) = 0;
  // To and from memory of host_memory(), in their turn: it must not be touched before they are
  // done.
  virtual void copy_out(void* host, const void* from, size_t bytes) = 0;
  virtual void copy_in(void* to, const void* host, size_t bytes) = 0;
  // Has a thread of the host do the work in its turn; work that throws makes the stream fail.  Meta
  // takes `seconds` for it.
  virtual void host_work(const char* name, double seconds, std::function<void()> work) = 0;
  // A queue of the host's own processors, whose memory is what the arena cuts up; nothing orders it
  // with this one but synchronize().
  virtual std::unique_ptr<Stream> on_host(std::shared_ptr<Arena>) = 0;

  virtual Event record() = 0;
  virtual void wait(const Event&) = 0;
  virtual void synchronize() = 0;

  // Whether the device can record.  Then capture() calls work(), which allocates, frees and
  // launches as ever but neither uploads nor reads, and returns what it launched, none of which has
  // run; replay() enqueues that, on the memory it was recorded on.
  virtual bool captures() const { return false; }
  virtual Graph capture(const std::function<void()>& work);
  virtual void replay(const Graph&);

 protected:
  Stream(Device device, const Architecture& architecture, std::shared_ptr<Arena> arena)
      : device_(device), architecture_(architecture), arena_(std::move(arena)) {}
  struct Beside {};  // another queue on the same device and memory
  Stream(Beside, const Stream& s)
      : device_(s.device_), architecture_(s.architecture_), arena_(s.arena_) {}
  // What is about to be enqueued.  With a trace.
  TraceSpan span(const char* name, Activity, size_t bytes = 0) const;

 private:
  Device device_;
  Architecture architecture_;
  std::shared_ptr<Arena> arena_;
  uint64_t launches_ = 0;
  std::shared_ptr<Trace> trace_ = nullptr;
  TraceLane lane_ = TraceLane::compute;
};

// While it lives, the stream is traced.
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

// Throws a sentence where there is no such device, or this build cannot use it.
void check_device(Device);

// A stream on the device with an arena of exactly `budget` bytes.  `threads` is for a cpu, 0 for
// one per core.  Throws where there is no such device, or not that much address space.
std::unique_ptr<Stream> open_stream(Device, size_t budget, int threads = 0);

// Bytes of memory that the device has for this process: of a cpu the machine's, or what its control
// group allows; of a GPU what is free, less what its libraries will take.
size_t device_memory(Device);

// The device that SPOOL_DEVICE in the environment names; else the first GPU, where there is one
// that this build can use; else the cpu.
Device default_device();

}  // namespace spool
