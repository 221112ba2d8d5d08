#pragma once

// The timeline of a piece of a run: which queue did what, when, for which op, and how many bytes
// were held when it was enqueued.  A stream that is given a Trace (Stream::trace) tells it of all
// it is given from then on: by its clock on meta, by the host's on the cpu, by events on cuda.  A
// stream without one pays a branch that is never taken.
//
// Spans are listed in program order.  Those of one lane do not overlap.  Work that fails leaves
// none.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace spool {

// The queues of a device, and the thread that enqueues.
// `update` is the queue of a host that updates parameters; `host` the thread that enqueues.
enum class TraceLane : uint8_t { compute, copy_out, copy_in, update, host };
constexpr size_t lane_count = 5;
const char* name(TraceLane);

// `host` is work that a thread of the host does in a queue's turn, and what the thread that
// enqueues is at; `wait` is a queue that stands still until another has come so far.
enum class Activity : uint8_t { kernel, copy, host, wait };
const char* name(Activity);

// What the thread that enqueues is at: "forward", "linear", 12.  Names live forever.
struct TraceContext {
  const char* phase = nullptr;  // null: nothing that has a name
  const char* op = nullptr;
  int64_t node = -1;  // of the tape

  explicit operator bool() const { return phase != nullptr; }
  bool operator==(const TraceContext&) const = default;
};

struct TraceSpan {
  TraceLane lane = TraceLane::compute;
  Activity activity = Activity::kernel;
  const char* name = "";
  size_t bytes = 0;      // that a copy moves
  size_t live = 0;       // bytes of the device that were held when it was enqueued
  size_t host_live = 0;  // likewise of the slabs of host memory
  TraceContext context = {};
  double begin = 0, end = 0;  // seconds since the first span began

  double seconds() const { return end - begin; }
};

class PendingSpan;

class Trace : public std::enable_shared_from_this<Trace> {
 public:
  using Interval = std::pair<double, double>;  // begin and end, seconds of the stream's clock

  // For streams.  A span whose times are known, will be told by done(), or are asked for by spans()
  // once the work has been enqueued.
  void add(const TraceSpan&, Interval);
  std::shared_ptr<PendingSpan> open(const TraceSpan&);
  void add(const TraceSpan&, std::function<Interval()> measure);
  // What measure() is relative to, on devices whose clock begins nowhere; kept for the streams.
  std::shared_ptr<void>& origin() { return origin_; }
  // That the streams work in the host's time, so that what the host is at can be shown beside.
  void show_host();
  // Bytes of this slab that are held from here on; when first called, up to here too.
  void hold_host(const void* slab, size_t bytes);

  // From here on the thread is at this; returns what it was at before.
  TraceContext enter(const TraceContext&);

  // All that has ended well, when all has ended.
  std::vector<TraceSpan> spans();

 private:
  friend class PendingSpan;
  enum class State : uint8_t { open, done, gone };
  struct Entry {
    TraceSpan span;
    State state;
    std::function<Interval()> measure = nullptr;
  };

  void push(const TraceSpan&, State, std::function<Interval()> measure);
  void close(size_t entry, State, Interval);

  std::mutex mutex_;
  std::condition_variable closed_;
  std::vector<Entry> entries_;
  size_t open_ = 0;
  TraceContext context_ = {};
  bool shows_host_ = false;
  double context_since_ = 0;  // by the host's clock
  std::vector<std::pair<const void*, size_t>> slabs_;
  std::shared_ptr<void> origin_;
};

// A span that is under way.  Without done() there is none.
class PendingSpan {
 public:
  PendingSpan(std::shared_ptr<Trace> trace, size_t entry)
      : trace_(std::move(trace)), entry_(entry) {}
  ~PendingSpan();
  PendingSpan(const PendingSpan&) = delete;
  PendingSpan& operator=(const PendingSpan&) = delete;
  void done(Trace::Interval);

 private:
  std::shared_ptr<Trace> trace_;
  size_t entry_;
};

// While it lives, what the thread enqueues belongs to this.  Without a trace it is nothing.
class TraceScope {
 public:
  TraceScope(Trace* trace, const char* phase) : trace_(trace) {
    if (trace_) [[unlikely]]
      before_ = trace_->enter({.phase = phase});
  }
  // Of an op, which has a name().
  template <class Op>
  TraceScope(Trace* trace, const char* phase, const Op& op, int64_t node) : trace_(trace) {
    if (trace_) [[unlikely]] {
      before_ = trace_->enter({.phase = phase, .op = op.name(), .node = node});
    }
  }
  // Of a tensor that travels, by its name and number.
  TraceScope(Trace* trace, const char* name, uint64_t number) : trace_(trace) {
    if (trace_) [[unlikely]] {
      before_ = trace_->enter({.phase = name, .node = static_cast<int64_t>(number)});
    }
  }
  ~TraceScope() {
    if (trace_) [[unlikely]]
      trace_->enter(before_);
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* trace_;
  TraceContext before_ = {};
};

// How long a lane stood still for others; of compute, how long copies were not hidden.
double waited(const std::vector<TraceSpan>&, TraceLane);
// From the first beginning to the last end.
double seconds(const std::vector<TraceSpan>&);

// The host's clock, in seconds.
double host_clock();

}  // namespace spool
